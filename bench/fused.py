#!/usr/bin/env python3
"""The fused kernels against their unfused twins, in turn in one run: time and memory of forward and backward together.

    bench/fused.py --rounds 3 [--docs]
    bench/fused.py --threads 1 --clock processor     on a machine that others use too

bench/fused.cpp has both sides, in this project's own kernels; each measurement is a process of its own, and both sides must give the same
results. Memory is by how much operands, results and intermediates raise the resident size. Writes fused.json and fused.md into --output;
--docs into docs/performance.md.
"""
import argparse
import json
import os
import subprocess
import sys
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "bench", "peers")]
import report  # noqa: E402

MIB = 1 << 20
# name: kernel, its operands, the twin's passes, calls in a round
WORKS = {
    "rms_norm": ("RMSNorm with the residual sum", "4096 x 2048", "13 passes: sum, square, mean, two products; in the backward two products and a sum of columns, then two, a mean, two and a sum", 5),
    "rope": ("RoPE", "4096 x 32 heads of 64", "8 passes: two products, a rotation and a sum, twice", 5),
    "swiglu": ("SwiGLU", "4096 x 5632", "5 passes: activation, product; in the backward two products and the activation's", 3),
    "linear_cross_entropy": ("linear cross entropy", "1024 tokens, 576 to 49152", "logits, log-softmax and gradient held whole", 2),
    "attention": ("attention", "4096 tokens, 4 heads on 2 of 64", "scores and probabilities held whole, no masked tile skipped", 1),
}
RELATIVE_TOLERANCE = 1e-5  # of the sum of squares of a result: both sides add up in f32, in other orders


def run(args, name, side):
    command = [args.bench, name, side, str(args.threads), str(WORKS[name][3])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit("fused.py: %s failed: %s" % (" ".join(command), done.stderr.strip()[-300:]))
    return json.loads(done.stdout)


def same_results(name, fused, unfused):
    for a, b in zip(fused["results"], unfused["results"], strict=True):
        if abs(a - b) > RELATIVE_TOLERANCE * abs(b):
            sys.exit("fused.py: %s: the fused kernel and its twin differ: %s, %s" % (name, fused["results"], unfused["results"]))


def measure(args):
    with open("/proc/cpuinfo") as f:
        cpu = next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), "CPU")
    document = {"machine": cpu, "settings": {"threads": args.threads, "clock": args.clock, "rounds": args.rounds}, "works": {name: [] for name in WORKS}}
    for _ in range(args.rounds):
        for name in WORKS:
            both = {side: run(args, name, side) for side in ("fused", "unfused")}
            same_results(name, **both)
            document["works"][name].append(both)
            report.save(document, markdown, "fused", args.output)  # what is measured stays, should the rest be stopped
    return document


def row(name, rounds, clock):
    label, shape, passes, _ = WORKS[name]
    seconds = {side: median(s for r in rounds for s in r[side][clock]) for side in ("fused", "unfused")}
    peak = {side: max(r[side]["bytes"] for r in rounds) / MIB for side in ("fused", "unfused")}
    return "| %s, %s | %s | %.1f | %.1f | %.2fx | %.0f | %.0f | %.2fx |" % (
        label, shape, passes, seconds["fused"] * 1e3, seconds["unfused"] * 1e3, seconds["unfused"] / seconds["fused"], peak["fused"], peak["unfused"],
        peak["fused"] / peak["unfused"])


def markdown(document):
    s = document["settings"]
    return "\n".join([
        "%s, %d thread%s, f32, forward and backward together; %s time, medians of %d round%s." % (
            document["machine"], s["threads"], "" if s["threads"] == 1 else "s", s["clock"], s["rounds"], "" if s["rounds"] == 1 else "s"), "",
        "| kernel | its twin | fused, ms | twin, ms | speed | fused, MiB | twin, MiB | memory |", "|---|---|---|---|---|---|---|---|",
        *(row(name, rounds, s["clock"]) for name, rounds in document["works"].items() if rounds)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=os.path.join(ROOT, "build", "release", "bench", "bench_fused"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--output", default=os.path.join(ROOT, "build", "peers"))
    parser.add_argument("--docs", action="store_true", help="also write docs/performance.md's table")
    parser.add_argument("--render", metavar="FILE", help="write from an earlier fused.json, measuring nothing")
    args = parser.parse_args()
    if args.render:
        with open(args.render) as f:
            document = json.load(f)
    else:
        document = measure(args)
    table = report.save(document, markdown, "fused", args.output)
    if args.docs:
        report.publish(table, "fused")
    print(table)


main()
