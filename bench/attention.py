#!/usr/bin/env python3
"""Heddle's attention against PyTorch's scaled_dot_product_attention, side by side in one run on this machine's CPU.

    bench/attention.py --rounds 3 [--docs]
    bench/attention.py --threads 1 --clock processor     on a machine that others use too
    bench/attention.py --dtype bf16 --output FOLDER      both programs in bf16

Causal, batch 1, f32 (or --dtype), grouped heads, 1k to 64k tokens. In each round Heddle and PyTorch run in turn, each in a process of its own; medians over
all calls. Counted are the visible pairs of query and key: 4 D FLOPs forward and 10 D backward for each and each head. PyTorch runs with
enable_gqa and with repeated keys and values; the better counts. The ceiling is the faster of both programs' matrix products in the same run.
Memory is by how much operands, results and kernels raise the resident size. Writes attention.json and attention.md into --output; --docs into
docs/performance.md.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "bench", "peers")]
import contenders  # noqa: E402
import report  # noqa: E402

MIB = 1 << 20
# tokens, heads, key-value heads, head_dim, calls in a round
WORKS = [(1024, 8, 2, 64, 5), (1024, 8, 2, 128, 5), (4096, 8, 2, 64, 3), (4096, 8, 2, 128, 3), (16384, 4, 1, 64, 1), (16384, 4, 1, 128, 1),
         (65536, 2, 1, 64, 1), (65536, 2, 1, 128, 1)]
WAYS = ("gqa", "repeat")


def flops(work, per_pair):
    tokens, heads, _, head_dim = work[:4]
    return per_pair * head_dim * heads * tokens * (tokens + 1) / 2


def run(command, threads):
    cores = sorted(os.sched_getaffinity(0))[:threads]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    if done.returncode:
        sys.exit("attention.py: %s failed: %s" % (command[0], done.stderr.strip()[-300:]))
    return json.loads(done.stdout)


def run_round(document, args, round_index):
    for entry in document["works"]:
        work, calls = entry["work"], entry["calls"]
        ways = WAYS if work[0] < 65536 else WAYS[:1]  # there they differ by nothing that counts, and a call takes a minute
        start, busy, own = time.monotonic(), contenders.busy_seconds(), sum(os.times()[:4])
        heddle = run([args.bench, "--json", args.threads, *work, calls, args.dtype], args.threads)
        torch = run([args.python, os.path.join(ROOT, "bench", "peers", "torch_attention.py"), args.threads, *work, calls, args.dtype, *ways], args.threads)
        others = contenders.busy_seconds() - busy - (sum(os.times()[:4]) - own)
        entry["rounds"].append({"heddle": heddle, "torch": torch, "busy_elsewhere": max(0.0, others / (time.monotonic() - start))})
        print("  round %d: %s" % (round_index + 1, row(entry, ceiling(document["works"], args.clock), args.clock)), flush=True)
        report.save(document, markdown, "attention", args.output)  # what is measured stays, should the rest be stopped


def ceiling(works, clock):
    """FLOP/s of the faster program's matrix product: its median over the run of each process's best."""
    def rate(program):
        return median(r[program]["product_flops"] / min(r[program]["product"][clock]) for e in works for r in e["rounds"])
    return max(rate("heddle"), rate("torch"))


def seconds(results, clock):
    """Medians of forward, backward and both together."""
    forward = [s for r in results for s in r["forward"][clock]]
    backward = [s for r in results for s in r["backward"][clock]]
    return median(forward), median(backward), median(f + b for f, b in zip(forward, backward))


def summary(entry, clock):
    own = seconds([r["heddle"] for r in entry["rounds"]], clock)
    by_way = {way: seconds([r["torch"]["ways"][way] for r in entry["rounds"]], clock) for way in entry["rounds"][0]["torch"]["ways"]}
    best = min(by_way, key=lambda way: by_way[way][2])
    by_round = [seconds([r["torch"]["ways"][best]], clock)[2] / seconds([r["heddle"]], clock)[2] for r in entry["rounds"]]
    return own, by_way[best], by_round


def row(entry, product_rate, clock):
    work = entry["work"]
    own, peer, by_round = summary(entry, clock)
    rates = [[flops(work, 4) / s[0] * 1e-9, flops(work, 10) / s[1] * 1e-9] for s in (own, peer)]
    memory = [max(r[program]["bytes"] for r in entry["rounds"]) / MIB for program in ("heddle", "torch")]
    return "| %s | %d / %d | %d | %.0f | %.0f | %.2f | %.0f | %.0f | %.2fx (%.2f-%.2f) | %.0f | %.0f |" % (
        "{:,}".format(work[0]), work[1], work[2], work[3], *rates[0], flops(work, 14) / own[2] / product_rate, *rates[1], peer[2] / own[2],
        min(by_round), max(by_round), *memory)


def markdown(document):
    s, works, m = document["settings"], [e for e in document["works"] if e["rounds"]], document["machine"]
    rate = ceiling(works, s["clock"])
    rounds = sorted({len(e["rounds"]) for e in works})
    return "\n".join([
        "%s, %d thread%s, %s; %s time, medians of %s round%s. Ceiling: %.0f GFLOP/s by the faster of both programs' matrix products." % (
            m, s["threads"], "" if s["threads"] == 1 else "s", document["versions"], s["clock"], " to ".join(map(str, rounds)), "" if rounds == [1] else "s", rate * 1e-9),
        "Meanwhile other programs used up to %.1f cores." % max(r["busy_elsewhere"] for e in works for r in e["rounds"]), "",
        "| tokens | heads / kv heads | head_dim | Heddle, GFLOP/s: forward | backward | both, of the ceiling | PyTorch, GFLOP/s: forward | backward "
        "| Heddle's speed, both (over rounds) | Heddle, MiB | PyTorch, MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|", *(row(e, rate, s["clock"]) for e in works)])


def saved(path):
    with open(path) as f:
        return json.load(f)


def measure(args):
    with open("/proc/cpuinfo") as f:
        cpu = next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), "CPU")
    version = subprocess.run([args.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout.strip()
    works = [{"work": w[:4], "calls": w[4], "rounds": []} for w in WORKS if not args.tokens or w[0] in args.tokens]
    document = {"machine": cpu, "versions": "PyTorch %s" % version, "settings": {"threads": args.threads, "clock": args.clock, "dtype": args.dtype}, "works": works}
    for r in range(args.rounds):
        run_round(document, args, r)
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=os.path.join(ROOT, "build", "release", "bench", "bench_attention"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build", "peers-venv", "bin", "python"), help="of scripts/peer_environment")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="of both programs' operands; the ceiling is fp32's")
    parser.add_argument("--tokens", type=int, action="append", help="these lengths only")
    parser.add_argument("--output", default=os.path.join(ROOT, "build", "peers"))
    parser.add_argument("--docs", action="store_true", help="also write docs/performance.md's table")
    parser.add_argument("--render", metavar="FILE", help="write from an earlier attention.json, measuring nothing")
    args = parser.parse_args()
    if args.docs and args.dtype != "fp32":
        parser.error("--docs writes fp32's table")
    document = saved(args.render) if args.render else measure(args)
    table = report.save(document, markdown, "attention", args.output)
    if args.docs:
        report.publish(table, "attention")
    print(table)


main()
