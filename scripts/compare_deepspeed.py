#!/usr/bin/env python3
"""Goes on with runs of DeepSpeed in Heddle, and compares every further step with DeepSpeed's own.

    scripts/compare_deepspeed.py [--heddle PROGRAM] [--only REGEX] [--keep FOLDER]

DeepSpeed trains a tiny Llama on two ranks (gloo, AdamW of PyTorch in two parameter groups, clipping), saves after 5 steps and makes 5
more. `heddle import --format checkpoint` takes the checkpoint over, and `heddle train` makes the same 5 steps from it on the same
rows. In fp32 losses and gradient norms must be within 1e-5 and weights within 1e-6 of DeepSpeed's; in bf16 and fp16, where
both round every product in ways of their own, losses within 1e-2, and an fp16 run's loss scale must be the same. ZeRO stages 1, 2 and 3, and
universal checkpoints made of them.

Needs the packages of scripts/peer_environment, and deepspeed beside them (`pip install deepspeed`). Prints a line a case.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import peer_python

peer_python.require("torch", "transformers", "safetensors", "deepspeed")

import torch
import torch.multiprocessing
from safetensors.torch import load_file

from heddle_program import DEFAULT_PROGRAM, Difference, Heddle, read_rows, write_json, write_rows

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
          "attention_bias": False, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None, "torch_dtype": "float32"}
RANKS, MICRO, SAVED, STEPS = 2, 2, 5, 10
ADAMW = {"lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1}
FP16 = {"enabled": True, "initial_scale_power": 18, "loss_scale_window": 100, "hysteresis": 1}  # the first steps overflow
CASES = {"stage-1": {"stage": 1}, "stage-2": {"stage": 2}, "stage-3": {"stage": 3}, "stage-2-universal": {"stage": 2, "universal": True},
         "stage-3-universal": {"stage": 3, "universal": True}, "stage-1-bf16": {"stage": 1, "precision": "bf16"},
         "stage-3-bf16": {"stage": 3, "precision": "bf16"}, "stage-2-fp16": {"stage": 2, "precision": "fp16"}}


def settings(case):
    config = {"train_micro_batch_size_per_gpu": MICRO, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0, "steps_per_print": 10 ** 9,
              "optimizer": {"type": "AdamW", "params": {**ADAMW, "torch_adam": True}},
              "zero_optimization": {"stage": case["stage"]}}
    if case["stage"] == 3:
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 100
    if case.get("precision") == "bf16":
        config["bf16"] = {"enabled": True}
    if case.get("precision") == "fp16":
        config["fp16"] = FP16
    return config


def deepspeed_rank(rank, case, folder, port):
    """One rank of the reference; rank 0 writes what its steps gave."""
    import deepspeed
    from transformers import AutoConfig, AutoModelForCausalLM

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # which a compiler would have to make first
    deepspeed.get_accelerator().is_fp16_supported = lambda: True  # PyTorch computes with it; DeepSpeed finds it too slow
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(os.path.join(folder, "model")), attn_implementation="eager")
    named = list(model.named_parameters())
    groups = [{"params": [p for _, p in named if p.dim() > 1]}, {"params": [p for _, p in named if p.dim() < 2], "weight_decay": 0.0}]
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=groups, config=settings(case))
    rows, steps = read_rows(os.path.join(folder, "rows.jsonl")), []
    for step in range(STEPS):
        first = (step * RANKS + rank) * MICRO
        ids = torch.tensor([row["input_ids"] for row in rows[first:first + MICRO]])
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        scale = engine.optimizer.cur_scale if hasattr(engine.optimizer, "cur_scale") else None
        engine.step()
        mean = loss.detach().double()
        torch.distributed.all_reduce(mean)
        norm = engine.get_global_grad_norm()
        steps.append({"loss": mean.item() / RANKS, "grad_norm": None if norm is None else float(norm), "loss_scale": scale})
        if step + 1 in (SAVED, STEPS):
            engine.save_checkpoint(os.path.join(folder, "after-%d" % (step + 1)))
    if rank == 0:
        write_json(os.path.join(folder, "deepspeed.json"), steps)
    torch.distributed.destroy_process_group()


def run_deepspeed(case, folder):
    """Losses of its steps, and the weights it ends with."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    torch.multiprocessing.start_processes(deepspeed_rank, (case, folder, random.randrange(20000, 60000)), RANKS, start_method="fork")
    weights = get_fp32_state_dict_from_zero_checkpoint(os.path.join(folder, "after-%d" % STEPS))
    with open(os.path.join(folder, "deepspeed.json")) as f:
        return json.load(f), weights


def universal(saved):
    """The checkpoint as DeepSpeed's own tool converts it."""
    source = os.path.join(saved, "global_step%d" % SAVED)
    target = os.path.join(os.path.dirname(saved), "universal", "global_step%d" % SAVED)
    script = os.path.join(os.path.dirname(sys.modules["deepspeed"].__file__), "checkpoint", "ds_to_universal.py")
    done = subprocess.run([sys.executable, script, "--input_folder", source, "--output_folder", target, "--inject_missing_state", "--num_extract_workers", "1",
                           "--num_merge_workers", "1"], capture_output=True, text=True)
    if done.returncode:
        raise Difference("ds_to_universal: " + done.stderr[-400:])
    return target


def go_on(heddle, case, folder):
    """The same steps by Heddle, from the checkpoint."""
    saved, out = os.path.join(folder, "after-%d" % SAVED), os.path.join(folder, "out")
    source = universal(saved) if case.get("universal") else saved
    heddle.run("import", source, out, "--format", "checkpoint", "--config_name", os.path.join(folder, "model"))
    config = settings(case)
    config["zero_optimization"] = {"stage": 2}  # a checkpoint belongs to no layout
    del config["optimizer"]["params"]["torch_adam"]
    heddle.run("train", write_json(os.path.join(folder, "run.json"), {
        "config_name": os.path.join(folder, "model"), "train_file": os.path.join(folder, "rows.jsonl"), "output_dir": out, "max_length": 32,
        "shuffle": False, "packing": False, "max_steps": STEPS, "ranks": RANKS, "threads": 1, "lr_scheduler_type": "constant", "deepspeed": config}))
    return [row for row in read_rows(os.path.join(out, "metrics.jsonl"))], load_file(os.path.join(out, "model.safetensors"))


def greatest(pairs):
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in pairs)


def compare(heddle, name, folder):
    case = CASES[name]
    generator = random.Random(3)
    os.makedirs(os.path.join(folder, "model"))
    write_json(os.path.join(folder, "model", "config.json"), CONFIG)
    # A few tokens over and over, so that there is something to learn.
    write_rows(os.path.join(folder, "rows.jsonl"), [{"input_ids": [generator.choice((3, 5, 8, 13, 21, generator.randrange(256))) for _ in range(32)]}
                                                    for _ in range(STEPS * RANKS * MICRO)])
    expected, weights = run_deepspeed(case, folder)
    steps, got = go_on(heddle, case, folder)
    if [row["step"] for row in steps] != list(range(SAVED + 1, STEPS + 1)):
        raise Difference("Heddle made steps %s" % [row["step"] for row in steps])
    expected = expected[SAVED:]
    loss = greatest((a["loss"], b["loss"]) for a, b in zip(steps, expected))
    norm = greatest((a["grad_norm"], b["grad_norm"]) for a, b in zip(steps, expected) if a["grad_norm"] and b["grad_norm"])
    weight = max((got[key] - value.float()).abs().max().item() for key, value in weights.items() if key in got)
    scales = [(a.get("loss_scale"), b["loss_scale"]) for a, b in zip(steps, expected)]
    rounded = "precision" in case
    bounds = (1e-2, 5e-2, 1e-3) if rounded else (1e-5, 1e-5, 1e-6)
    is_good = all(value <= bound for value, bound in zip((loss, norm, weight), bounds))
    if case.get("precision") == "fp16":
        is_good = is_good and all(a == b for a, b in scales)
    fell = expected[0]["loss"] - expected[-1]["loss"]
    return is_good, "losses %.1e, gradient norms %.1e, weights %.1e%s; the loss fell by %.3f" % (
        loss, norm, weight, ", loss scales %s" % ("equal" if all(a == b for a, b in scales) else scales) if case.get("precision") == "fp16" else "", fell)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", help="folder for what is made")
    options = parser.parse_args()
    heddle, failed = Heddle(options.heddle), 0
    with tempfile.TemporaryDirectory(prefix="heddle-deepspeed-") as scratch:
        for name in CASES:
            if not re.search(options.only, name):
                continue
            folder = os.path.join(options.keep or scratch, name)
            os.makedirs(folder)
            try:
                is_good, text = compare(heddle, name, folder)
            except Difference as e:
                is_good, text = False, str(e)
            failed += not is_good
            print("%-20s %-4s %s" % (name, "ok" if is_good else "BAD", text), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
