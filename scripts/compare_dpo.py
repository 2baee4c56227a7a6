#!/usr/bin/env python3
"""DPO steps against TRL's DPOTrainer in float64, same start, same pairs in the same order.

    $(scripts/peer_environment) scripts/compare_dpo.py MODEL_FOLDER [--tiny] [--heddle build/release/src/heddle] [--steps 5] [--only TEXT]

MODEL_FOLDER has a tokenizer with a chat template; --tiny puts a small model with random weights beside that tokenizer in place of the folder's own. Each
case trains full weights or an adapter on the pairs below and prints the greatest differences over the steps of losses, of gradient norms, of rewards and
log-probabilities, and of all of an evaluation behind the last step; absolute below 1 and relative above. It fails beyond 1e-5 (--bound).
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUESTIONS = ["What is the capital of France?", "Name a prime number.", "How do bees find their way home?", "Write a line about rain.", "Is the moon a star?",
             "What does a compiler do?", "Give me a recipe for bread.", "Why is the sky blue?", "Translate good morning to German.", "Who wrote Hamlet?"]
GOOD = ["Paris is the capital of France.", "Seven.", "They read the sun's place in the sky, and remember landmarks on the way.", "Rain writes on the roof what the clouds forgot to say.",
        "No, it is a satellite of the Earth.", "It turns a program into instructions of a machine.", "Flour, water, salt and yeast; knead, wait, bake.",
        "Air scatters blue light more than red light.", "Guten Morgen.", "William Shakespeare."]
BAD = ["I do not know that.", "Eight, I think, or ten, or twelve.", "Magic.", "Rain rain rain rain rain.", "Yes.", "It compiles.", "Buy some.", "Because.", "Good Morgen to you all!", "Me."]
ROWS = {
    "chat": [{"prompt": [{"role": "user", "content": q}], "chosen": [{"role": "assistant", "content": a}], "rejected": [{"role": "assistant", "content": b}]}
             for q, a, b in zip(QUESTIONS, GOOD, BAD)],
    "chat-implicit": [{"chosen": [{"role": "user", "content": q}, {"role": "assistant", "content": a}], "rejected": [{"role": "user", "content": q}, {"role": "assistant", "content": b}]}
                      for q, a, b in zip(QUESTIONS, GOOD, BAD)],
    "text": [{"prompt": q, "chosen": " " + a, "rejected": " " + b} for q, a, b in zip(QUESTIONS, GOOD, BAD)],
    "text-implicit": [{"chosen": q + " " + a, "rejected": q + " " + b} for q, a, b in zip(QUESTIONS, GOOD, BAD)],
}
LORA = dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
# Rows, adapter ("new": B is zero; "old": it is not), keys of both trainers.
CASES = {
    "full-sigmoid": ("chat", None, {}),
    "full-accumulated": ("chat-implicit", None, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 1}),
    "full-text": ("text", None, {"beta": 0.3}),
    "full-text-implicit": ("text-implicit", None, {}),
    "full-truncated": ("text", None, {"max_length": 12}),
    "full-keep-end": ("text", None, {"max_length": 12, "truncation_mode": "keep_end"}),
    "full-hinge": ("chat", None, {"loss_type": "hinge"}),
    "full-ipo": ("chat", None, {"loss_type": "ipo"}),
    "full-robust": ("chat", None, {"loss_type": "robust", "label_smoothing": 0.1}),
    "full-sigmoid-norm": ("chat", None, {"loss_type": "sigmoid_norm", "beta": 2.0}),
    "lora-new": ("chat", "new", {}),
    "lora-old": ("chat", "old", {"beta": 0.5}),
}
REWARDS = ["rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected"]


class Recorder(DPOTrainer):
    """Keeps unrounded losses, and takes rows in file order."""

    def __init__(self, *args, **kwargs):
        self.losses = []
        super().__init__(*args, **kwargs)

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def _compute_loss(self, model, inputs, return_outputs):
        loss = super()._compute_loss(model, inputs, return_outputs)
        if self.model.training:
            self.losses.append(float(loss))
        return loss


def trl_steps(folder, tokenizer, rows, steps, adapter, keys, start, scratch):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    if adapter:
        model = get_peft_model(model, LoraConfig(**LORA))
        if adapter == "old":
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weight, std=0.02)
        model.save_pretrained(start)
        if adapter == "new":
            model = model.unload()
            from peft import PeftModel
            model = PeftModel.from_pretrained(model, start, is_trainable=True)
    config = DPOConfig(output_dir=os.path.join(scratch, "trl"), max_steps=steps, learning_rate=1e-3, lr_scheduler_type="constant", logging_steps=1, report_to="none",
                       save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False, precompute_ref_log_probs=True, weight_decay=0.0,
                       **{"per_device_train_batch_size": 2, "per_device_eval_batch_size": 5, "max_length": 64, "disable_tqdm": True, **keys})
    trainer = Recorder(model=model, args=config, train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.train()
    accumulation = keys.get("gradient_accumulation_steps", 1)
    logs = [log for log in trainer.state.log_history if "grad_norm" in log]
    losses = [sum(trainer.losses[i:i + accumulation]) / accumulation for i in range(0, len(trainer.losses), accumulation)]
    return [{"loss": loss, "grad_norm": log["grad_norm"], **{k: log[k] for k in REWARDS}} for loss, log in zip(losses, logs)], trainer.evaluate()


def heddle_steps(program, folder, rows, steps, adapter, keys, start, scratch):
    data = os.path.join(scratch, "pairs.jsonl")
    with open(data, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    run = {"model_name_or_path": folder, "train_file": data, "validation_file": data, "max_length": 64, "shuffle": False, "per_device_train_batch_size": 2,
           "per_device_eval_batch_size": 4, "max_steps": steps, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "weight_decay": 0.0, "loss_type": "sigmoid",
           "output_dir": os.path.join(scratch, "out"), "resume_from_checkpoint": False, **keys}
    if adapter:
        run["adapter_name_or_path"] = start
    path = os.path.join(scratch, "run.json")
    with open(path, "w") as f:
        json.dump(run, f)
    done = subprocess.run([program, "train", path], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    with open(os.path.join(scratch, "out", "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return [m for m in lines if "loss" in m], [m for m in lines if "eval_loss" in m][-1]


def make_tiny(folder, scratch):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = AutoConfig.from_pretrained(folder)
    config = type(config)(**{**config.to_dict(), "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
                             "initializer_range": 0.1, "layer_types": None})
    torch.manual_seed(0)
    out = os.path.join(scratch, "tiny")
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--bound", type=float, default=1e-5)
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "release", "src", "heddle"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    failed = done = 0
    for name, (rows, adapter, keys) in CASES.items():
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = make_tiny(args.model, scratch) if args.tiny else args.model
            start = os.path.join(scratch, "start")
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                want, want_eval = trl_steps(folder, AutoTokenizer.from_pretrained(folder), ROWS[rows], args.steps, adapter, keys, start, scratch)
            got, got_eval = heddle_steps(args.heddle, folder, ROWS[rows], args.steps, adapter, keys, start, scratch)
        assert len(got) == len(want) == args.steps, (len(got), len(want))
        loss = max(abs(g["loss"] - w["loss"]) / max(1.0, abs(w["loss"])) for g, w in zip(got, want))
        norm = max(abs(g["grad_norm"] / w["grad_norm"] - 1) for g, w in zip(got, want))
        rewards = max(abs(g[k] - w[k]) / max(1.0, abs(w[k])) for g, w in zip(got, want) for k in REWARDS)
        evaluation = max(abs(got_eval["eval_" + k] - want_eval["eval_" + k]) / max(1.0, abs(want_eval["eval_" + k])) for k in ["loss"] + REWARDS)
        ok = max(loss, norm, rewards, evaluation) < args.bound
        failed += not ok
        done += 1
        print("%-4s %-20s losses %.1e, gradient norms %.1e, rewards %.1e, evaluation %.1e; %.4f to %.4f in %d steps" %
              ("ok" if ok else "FAIL", name, loss, norm, rewards, evaluation, got[0]["loss"], got[-1]["loss"], len(got)), flush=True)
    print("%d passed, %d failed" % (done - failed, failed))
    return failed > 0


sys.exit(main())
