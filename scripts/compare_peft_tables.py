#!/usr/bin/env python3
"""Adapters of embeddings and heads, and with added tokens, against PEFT + transformers, on tiny models.

    $(scripts/peer_environment) scripts/compare_peft_tables.py [--heddle build/release/src/heddle] [--only NAME]

Each case starts from an adapter that PEFT saved and makes five steps with the same rows, in float64 there and in fp32 here: losses and weights within 1e-5, gradient
norms within 1e-5 of themselves. Then PEFT loads the adapter that came out, and both sides' logits and, where adapters merge, the merged folder's agree (1e-4).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VOCABULARY, ADDED, STEPS = 64, 6, 5
CASES = {
    "embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "head": {"target_modules": ["v_proj", "lm_head"]},
    "both-rslora": {"target_modules": ["embed_tokens", "lm_head", "down_proj"], "use_rslora": True},
    "tied-embedding": {"tied": True, "target_modules": ["q_proj", "embed_tokens"]},
    "tied-both": {"tied": True, "target_modules": ["embed_tokens", "lm_head"]},
    "gpt2-embedding": {"gpt2": True, "target_modules": ["c_attn", "wte"]},
    "saved": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    "tied-saved-both": {"tied": True, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    "tied-saved-embedding": {"tied": True, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "tied-saved-head": {"tied": True, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "tied-saved-as-one": {"tied": True, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "added-tokens": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"], "added": ADDED},
    "tied-added-tokens": {"tied": True, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"], "added": ADDED},
    "token-rows": {"target_modules": ["q_proj"], "trainable_token_indices": [60, 3, 7]},
    "token-rows-by-module": {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [3, 5], "lm_head": [1]}},
    "tied-token-rows": {"tied": True, "target_modules": ["q_proj"], "trainable_token_indices": [60, 3, 7]},
    "tied-token-rows-split": {"tied": True, "target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [3, 5], "lm_head": [1]}},
    "tied-added-token-rows": {"tied": True, "target_modules": ["q_proj"], "trainable_token_indices": list(range(VOCABULARY, VOCABULARY + ADDED)), "added": ADDED},
    "gpt2-token-rows": {"gpt2": True, "target_modules": ["c_attn"], "trainable_token_indices": [60, 3, 7]},
    "dora-embedding": {"target_modules": ["q_proj", "embed_tokens"], "use_dora": True},
    "dora-head": {"target_modules": ["q_proj", "lm_head"], "use_dora": True},
    "tied-dora-both": {"tied": True, "target_modules": ["embed_tokens", "lm_head"], "use_dora": True},
    "gpt2-dora-embedding": {"gpt2": True, "target_modules": ["c_attn", "wte"], "use_dora": True},
    "cut-vocabulary": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"], "added": -5},
}


def make_base(case, folder):
    torch.manual_seed(3)
    common = dict(vocab_size=VOCABULARY, tie_word_embeddings=case.get("tied", case.get("gpt2", False)), bos_token_id=None, eos_token_id=None, pad_token_id=None)
    if case.get("gpt2"):
        model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, **common))
    else:
        model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                             max_position_embeddings=64, **common))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.5 if parameter.dim() == 1 else 0.0, 0.1)
    model.save_pretrained(folder)


def load_base(case, folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    if case.get("added"):
        torch.manual_seed(4)
        model.resize_token_embeddings(VOCABULARY + case["added"], mean_resizing=True)
    return model


def peft_steps(case, folder, rows, start):
    config = {k: v for k, v in case.items() if k not in ("tied", "added", "gpt2")}
    model = get_peft_model(load_base(case, folder, torch.float32), LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **config))
    torch.manual_seed(5)
    with torch.no_grad():  # B, and A of an embedding, are zero: what their gradients are of would be, too
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and "lora" in name and "magnitude" not in name:
                parameter.normal_(0.0, 0.05)
    model.save_pretrained(start)
    model = model.double()
    trained = list({id(p): p for p in model.parameters() if p.requires_grad}.values())
    optimizer = torch.optim.AdamW([{"params": [p], "weight_decay": 0.1 if p.dim() >= 2 else 0.0} for p in trained], lr=1e-3)
    losses, norms = [], []
    for step in range(STEPS):
        ids = torch.tensor(rows[2 * step:2 * step + 2])
        logits = model(ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    end = start + "-end"
    model.save_pretrained(end)
    with torch.no_grad():
        return losses, norms, load_file(os.path.join(end, "adapter_model.safetensors")), model(torch.tensor(rows[:2])).logits


def heddle_steps(program, folder, rows, start, out):
    with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"input_ids": row}) + "\n" for row in rows)
    run = {"model_name_or_path": os.path.join(folder, "base"), "adapter_name_or_path": start, "train_file": os.path.join(folder, "rows.jsonl"), "max_length": 64,
           "packing": False, "shuffle": False, "per_device_train_batch_size": 2, "max_steps": STEPS, "learning_rate": 1e-3, "lr_scheduler_type": "constant",
           "weight_decay": 0.1, "output_dir": out, "resume_from_checkpoint": False}
    path = os.path.join(folder, "run.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(run, f)
    done = subprocess.run([program, "train", path], check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        metrics = [json.loads(line) for line in f]
    return [m["loss"] for m in metrics], [m["grad_norm"] for m in metrics], load_file(os.path.join(out, "adapter_model.safetensors"))


def compare(program, case, folder):
    make_base(case, os.path.join(folder, "base"))
    generator = torch.Generator().manual_seed(7)
    rows = torch.randint(0, VOCABULARY + case.get("added", 0), (2 * STEPS, 24), generator=generator).tolist()
    start, out = os.path.join(folder, "start"), os.path.join(folder, "out")
    want = peft_steps(case, os.path.join(folder, "base"), rows, start)
    got = heddle_steps(program, folder, rows, start, out)
    repeated = [".base_layer.", ".modules_to_save.", ".original_module."]  # the base's own tables, and saved ones once more
    by_module = isinstance(case.get("trainable_token_indices"), dict)
    if case.get("tied") and not by_module:
        repeated.append("lm_head.token_adapter.")  # the embedding's
    missing = {name for name in want[2] if not any(part in name for part in repeated)} - set(got[2])
    assert not missing and set(got[2]) <= set(want[2]), "other tensors: %s" % sorted(missing ^ (set(got[2]) - set(want[2])))
    weights = max(float((got[2][name].double() - want[2][name].double()).abs().max()) for name in got[2])
    with torch.no_grad():
        loaded = PeftModel.from_pretrained(load_base(case, os.path.join(folder, "base"), torch.float32), out)
        logits = float((loaded(torch.tensor(rows[:2])).logits - want[3]).abs().max())
        merged = os.path.join(folder, "merged")
        done = subprocess.run([program, "export", out, merged, "--format", "hf"], check=False, stderr=subprocess.PIPE, text=True)
        splits = case.get("tied", case.get("gpt2")) and (by_module or {"embed_tokens", "lm_head", "wte"} & set(case["target_modules"]))
        assert (done.returncode == 0) == (not splits), done.stderr
        if done.returncode == 0:
            whole = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32, attn_implementation="eager")
            logits = max(logits, float((whole(torch.tensor(rows[:2])).logits - want[3]).abs().max()))
    return max(abs(a - b) for a, b in zip(got[0], want[0])), max(abs(a / b - 1) for a, b in zip(got[1], want[1])), weights, logits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "release", "src", "heddle"))
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    for name, case in CASES.items():
        if arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                differences = compare(arguments.heddle, case, folder)
                ok = max(differences[:3]) < 1e-5 and differences[3] < 1e-4
                text = "losses %.1e, gradient norms %.1e, weights %.1e, logits after loading and merging %.1e" % differences
            except (AssertionError, RuntimeError) as error:
                ok, text = False, str(error)
        failed += not ok
        print("%-4s %-22s %s" % ("ok" if ok else "FAIL", name, text), flush=True)
    print("%d failed" % failed)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
