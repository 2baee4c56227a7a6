#!/usr/bin/env python3
"""AdamW on the CPU: Heddle's kernel, PyTorch's fused AdamW and DeepSpeed's CPUAdam on as many values, in turn, and the memory
bandwidth with the same streams.

    bench/cpu_adam.py [--millions 100] [--rounds 3] [--docs]

Three works. fp32: gradients and weights in fp32. fp32-to-bf16: the weights in bf16 are written too. bf16-to-bf16: the gradients
come in bf16 besides. The others have no pass for the last two: they convert before and after. Needs
build/release/bench/bench_adamw; the others come from scripts/peer_environment (and `pip install deepspeed` there). With
--docs the table goes into docs/performance.md too.
"""
import argparse
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from heddle_program import write_between_marks  # noqa: E402

WORKS = ("fp32", "fp32-to-bf16", "bf16-to-bf16")


def peer(name, millions):
    """Prints `work milliseconds` a line: the best of the calls."""
    import torch
    count = int(millions * 1e6)
    weight = torch.nn.Parameter(torch.ones(count))
    weight.grad = torch.full((count,), 0.5)
    settings = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    if name == "torch":
        optimizer = torch.optim.AdamW([weight], fused=True, **settings)
    else:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        optimizer = DeepSpeedCPUAdam([weight], adamw_mode=True, **settings)
    half, copy = torch.full((count,), 0.5, dtype=torch.bfloat16), torch.ones(count, dtype=torch.bfloat16)

    def step(work):
        if work == "bf16-to-bf16":
            weight.grad.copy_(half)
        optimizer.step()
        if work != "fp32":
            copy.copy_(weight.data)

    for work in WORKS:
        step(work)
        best, total = float("inf"), 0
        while total < 2:
            start = time.perf_counter()
            step(work)
            took = time.perf_counter() - start
            best, total = min(best, took), total + took
        print("result", work, "%.2f" % (best * 1e3))


def measure(command):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return [line.split()[1:] for line in out.splitlines() if line.startswith("result ")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/bench/bench_adamw"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build/peers-venv/bin/python"))
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--peer", choices=("torch", "deepspeed"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(options.peer, options.millions)
    best, bytes_of = {}, {}
    for _ in range(options.rounds):
        for work, took, size in measure([options.program, str(options.millions)]):
            best["heddle", work] = min(float(took), best.get(("heddle", work), float("inf")))
            bytes_of[work] = float(size)
        for name in ("torch", "deepspeed"):
            for work, took in measure([options.python, __file__, "--peer", name, "--millions", str(options.millions)]):
                best[name, work] = min(float(took), best.get((name, work), float("inf")))
    bandwidth = bytes_of["streams"] / best["heddle", "streams"]
    lines = ["%g million values; four streams read and three written in %.1f ms, %.1f GB/s. Milliseconds, best of %d rounds."
             % (options.millions, best["heddle", "streams"], bandwidth * 1e-6, options.rounds), "",
             "| work | Heddle | of the bandwidth | PyTorch, fused | DeepSpeed, CPUAdam | Heddle against the faster |", "|---|---|---|---|---|---|"]
    for work in WORKS:
        ours, others = best["heddle", work], [best[name, work] for name in ("torch", "deepspeed")]
        lines.append("| %s | %.1f | %.0f%% | %.1f | %.1f | %.2fx |"
                     % (work, ours, 100 * bytes_of[work] / ours / bandwidth, *others, min(others) / ours))
    print("\n".join(lines))
    if options.docs:
        write_between_marks("performance.md", "bench/cpu_adam.py", "\n".join(lines))


main()
