#!/usr/bin/env python3
"""What saving a model with AdamW costs in PyTorch: torch.save, and torch.distributed.checkpoint at once and asynchronously.

    torch_checkpoint.py MODEL FOLDER --rounds 3 --threads 2

MODEL is a Hugging Face folder. Saves go to FOLDER, one at a time, each synced to the disk. Prints a JSON line for each save: `stall`, for which the
caller waits; `seconds`, until the bytes are on the disk; `bytes`; `extra_bytes`, by which the process's greatest resident size grew.
"""
import argparse
import json
import os
import resource
import shutil
import time

import torch
import torch.distributed.checkpoint as dcp
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("folder")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=os.cpu_count())
args = parser.parse_args()
torch.set_num_threads(args.threads)


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()


def reset_peak():
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


def peak():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def sync(path):
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                os.fsync(f.fileno())
                total += os.fstat(f.fileno()).st_size
    return total


def make_state():
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-3
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    names = [name for name, _ in model.named_parameters()]
    states = {name: optimizer.state[parameter] for name, parameter in model.named_parameters()}
    return {"model": dict(model.named_parameters()), "optimizer": {name: states[name] for name in names}}


def measure(kind, save):
    path = os.path.join(args.folder, kind.replace(" ", "-"))
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    os.sync()
    before = resident()
    reset_peak()
    start = time.perf_counter()
    pending = save(path)
    stall = time.perf_counter() - start
    if pending is not None:
        pending.result()
    total = sync(path)
    print(json.dumps({"kind": kind, "stall": stall if pending is not None else time.perf_counter() - start,
                      "seconds": time.perf_counter() - start, "bytes": total, "extra_bytes": peak() - before}), flush=True)
    shutil.rmtree(path)


state = make_state()
for _ in range(args.rounds):
    measure("torch.save", lambda path: torch.save(state, os.path.join(path, "state.pt")))
    measure("DCP", lambda path: dcp.save(state, checkpoint_id=path, no_dist=True) and None)
    measure("DCP async", lambda path: dcp.async_save(state, checkpoint_id=path))
