#!/usr/bin/env python3
"""AdamW on the CPU: Heddle's kernel, PyTorch's fused AdamW and DeepSpeed's CPUAdam on as many values, a call of each in
turn, and the memory bandwidth with the same streams.

    bench/cpu_adam.py [--millions 100] [--turns 60] [--docs]

Three works. fp32: gradients and weights in fp32. fp32-to-bf16: the weights in bf16 are written too. bf16-to-bf16: the gradients
come in bf16 besides. The others have no pass for the last two: they convert before and after. All programs stay up and wait for
their turn, so that a machine whose memory is fast in one second and slow in the next is the same for each; a turn's ratio is of
calls that follow each other. Needs build/release/bench/bench_adamw; the others come from scripts/peer_environment (and
`pip install deepspeed` there). With --docs the table goes into docs/performance.md too.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from heddle_program import write_between_marks  # noqa: E402

PEERS = ("torch", "deepspeed")
WORKS = ("fp32", "fp32-to-bf16", "bf16-to-bf16")


def peer(name, millions):
    """Answers each work's name on standard input with the milliseconds of one call."""
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

    for line in sys.stdin:
        start = time.perf_counter()
        step(line.strip())
        print("%.3f" % ((time.perf_counter() - start) * 1e3), flush=True)


class Program:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def call(self, work):
        """Milliseconds, and bytes where the program says them."""
        time.sleep(0.01)  # the one before may still wait for work with all its threads
        self.process.stdin.write(work + "\n")
        self.process.stdin.flush()
        line = None
        while not line or not line[0].isdigit():  # DeepSpeed logs to standard output
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("cpu_adam: %s ended with code %s" % (self.process.args[0], self.process.wait()))
        return [float(word) for word in line.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, default=100)
    parser.add_argument("--turns", type=int, default=60, help="of each work")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/bench/bench_adamw"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build/peers-venv/bin/python"))
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(options.peer, options.millions)
    programs = {"heddle": Program([options.program, str(options.millions)])}
    for name in PEERS:
        programs[name] = Program([options.python, __file__, "--peer", name, "--millions", str(options.millions)])
    took, bytes_of = {}, {}
    for turn in range(options.turns + 1):
        for work in WORKS:
            for name, asked in (("heddle", "streams"), *((name, work) for name in programs)):
                milliseconds, *size = programs[name].call(asked)
                bytes_of.update({asked: size[0]} if size else {})
                if turn > 0:  # the first brings memory and threads about
                    took.setdefault((name if asked == work else asked, work), []).append(milliseconds)
    streams = [value for work in WORKS for value in took["streams", work]]
    lines = ["%g million values, %d turns; milliseconds, medians (best). Four streams read and three written take %.1f (%.1f), %.1f GB/s at best."
             % (options.millions, options.turns, statistics.median(streams), min(streams), bytes_of["streams"] / min(streams) * 1e-6), "",
             "| work | Heddle | of the bandwidth | PyTorch, fused | DeepSpeed, CPUAdam | Heddle's speed against PyTorch (quartiles) | against DeepSpeed (quartiles) |",
             "|---|---|---|---|---|---|---|"]
    for work in WORKS:
        ours, bandwidth = took["heddle", work], [bytes_of["streams"] / value for value in took["streams", work]]
        share = statistics.median(bytes_of[work] / mine / most for mine, most in zip(ours, bandwidth))
        cells = ["%.1f (%.1f)" % (statistics.median(took[name, work]), min(took[name, work])) for name in programs]
        for name in PEERS:
            low, middle, high = statistics.quantiles([theirs / mine for theirs, mine in zip(took[name, work], ours)])
            cells.append("%.2fx (%.2f-%.2f)" % (middle, low, high))
        cells.insert(1, "%.0f%%" % (100 * share))
        lines.append("| %s | %s |" % (work, " | ".join(cells)))
    print("\n".join(lines))
    if options.docs:
        write_between_marks("performance.md", "bench/cpu_adam.py", "\n".join(lines))


main()
