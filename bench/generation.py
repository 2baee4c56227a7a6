#!/usr/bin/env python3
"""Heddle's generation against transformers' and against this machine's memory bandwidth, side by side in one run.

    $(scripts/peer_environment) --version && bench/generation.py MODEL [--gguf FILE.gguf] --rounds 3 [--docs]
    bench/generation.py MODEL --threads 1 --clock processor     on a machine that others use too

MODEL is a Hugging Face folder, such as SmolLM2-135M. Greedy, one text at a time: a prompt of 512 tokens, then 64 more. In each round each program
runs in turn, in a process of its own that generates once without counting. One token reads all weights and the cache once: these bytes by its time
stand beside a streaming read (that of `heddle bench`) which the same process measures just before and after; "of it" is the median of the rounds.
The prefill stands beside the forward of an evaluation of as many tokens. Medians over all tokens. Both programs must begin with the same tokens
in fp32. Writes generation.json and generation.md into --output; --docs into docs/performance.md.
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

SAME_TOKENS = 4  # in fp32 sums of another order may decide a near tie, but hardly so early


def run(command, threads):
    cores = sorted(os.sched_getaffinity(0))[:threads]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    if done.returncode:
        sys.exit("generation.py: %s failed: %s" % (command[0], done.stderr.strip()[-300:]))
    return json.loads(done.stdout.strip().splitlines()[-1])


def programs(args):
    """name, label, weights and precision, command, whether it is Heddle."""
    sizes = [args.threads, args.prompt, args.tokens, 1]
    peer = os.path.join(ROOT, "bench", "peers", "torch_generate.py")
    found = []
    for precision in ("fp32", "bf16"):
        found.append(("heddle-" + precision, "Heddle", precision, [args.bench, args.model, precision, *sizes], True))
        if not args.skip_peer:
            found.append(("transformers-" + precision, "transformers", precision, [args.python, peer, args.model, precision, *sizes], False))
    if args.gguf:
        for precision in ("fp32", "bf16"):
            found.append(("gguf-" + precision, "Heddle", "%s, %s" % (os.path.basename(args.gguf), precision), [args.bench, args.gguf, precision, *sizes], True))
    return found


def check_same_tokens(rounds):
    first = {name: r[-1]["rounds"][-1]["ids"][:SAME_TOKENS] for name, r in rounds.items() if name in ("heddle-fp32", "transformers-fp32") and r}
    if len({tuple(ids) for ids in first.values()}) > 1:
        sys.exit("generation.py: the programs begin with other tokens: %s" % first)


def measure(args):
    with open("/proc/cpuinfo") as f:
        cpu = next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), "CPU")
    version = "" if args.skip_peer else subprocess.run(
        [args.python, "-c", "import torch, transformers; print(', transformers %s, PyTorch %s' % (transformers.__version__, torch.__version__))"],
        capture_output=True, text=True).stdout.rstrip("\n")
    settings = {"threads": args.threads, "clock": args.clock, "prompt": args.prompt, "tokens": args.tokens, "model": os.path.basename(os.path.abspath(args.model))}
    listed = programs(args)
    document = {"machine": cpu, "versions": version, "settings": settings, "programs": [{"name": n, "label": p, "weights": w, "is_heddle": h, "rounds": []} for n, p, w, _, h in listed]}
    for number in range(args.rounds):
        for entry, (_, _, _, command, _) in zip(document["programs"], listed):
            start, busy, own = time.monotonic(), contenders.busy_seconds(), sum(os.times()[:4])
            measured = run(command, args.threads)
            others = contenders.busy_seconds() - busy - (sum(os.times()[:4]) - own)
            measured["busy_elsewhere"] = max(0.0, others / (time.monotonic() - start))
            entry["rounds"].append(measured)
            print("  round %d: %s" % (number + 1, row(entry, document)), flush=True)
            check_same_tokens({e["name"]: e["rounds"] for e in document["programs"]})
            report.save(document, markdown, "generation", args.output)  # what is measured stays, should the rest be stopped
    return document


def seconds(entry, clock):
    return median(s for process in entry["rounds"] for r in process["rounds"] for s in r[clock])


def prefill_rate(entry, prompt):
    return prompt / median(r["prefill"] for process in entry["rounds"] for r in process["rounds"])


def row(entry, document):
    s = document["settings"]
    clock, prompt = s["clock"], s["prompt"]
    token = seconds(entry, clock)
    cells = [entry["label"], entry["weights"], "%.1f" % (1 / token)]
    all_rounds = [r for process in entry["rounds"] for r in process["rounds"]]
    if entry["is_heddle"]:
        one = entry["rounds"][0]
        size = one["weight_bytes"] + one["position_bytes"] * (prompt + s["tokens"] / 2)
        read = median(r["read_bytes"] / r["read_" + clock] for r in all_rounds)
        of_read = median(size / median(r[clock]) / (r["read_bytes"] / r["read_" + clock]) for r in all_rounds)
        beside = median(r["forward"] / r["prefill_beside_forward"] for r in all_rounds)
        cells += ["%.0f" % (size / 1e6), "%.1f" % (size / token * 1e-9), "%.1f" % (read * 1e-9), "%.2f" % of_read]
    else:
        beside = None
        cells += [""] * 4
    peer = next((e for e in document["programs"] if not e["is_heddle"] and e["rounds"] and e["weights"] == entry["weights"]), None)
    is_compared = entry["is_heddle"] and peer is not None
    cells += ["%.2fx" % (seconds(peer, clock) / token) if is_compared else "", "%.0f" % prefill_rate(entry, prompt), "%.2fx" % beside if beside else "",
              "%.2fx" % (prefill_rate(entry, prompt) / prefill_rate(peer, prompt)) if is_compared else "",
              "%.0f" % (max(process["peak_rss"] for process in entry["rounds"]) / 2**20)]
    return "| %s |" % " | ".join(cells)


def markdown(document):
    s = document["settings"]
    measured = [e for e in document["programs"] if e["rounds"]]
    return "\n".join([
        "%s: %s, %d thread%s%s; a prompt of %d tokens, then %d more; %s time of a token, medians of %d round%s." % (
            s["model"], document["machine"], s["threads"], "" if s["threads"] == 1 else "s", document["versions"], s["prompt"], s["tokens"], s["clock"],
            len(measured[0]["rounds"]), "" if len(measured[0]["rounds"]) == 1 else "s"),
        "Meanwhile other programs used up to %.1f cores." % max(r["busy_elsewhere"] for e in measured for r in e["rounds"]), "",
        "| program | weights | tokens/s | MB a token | GB/s | streaming read, GB/s | of it | against transformers | prefill, tokens/s | of the forward's speed "
        "| against transformers | peak memory, MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|", *(row(e, document) for e in measured)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a Hugging Face folder")
    parser.add_argument("--gguf", help="the same model with quantized weights")
    parser.add_argument("--bench", default=os.path.join(ROOT, "build", "release", "bench", "bench_generation"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build", "peers-venv", "bin", "python"), help="of scripts/peer_environment")
    parser.add_argument("--skip-peer", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--output", default=os.path.join(ROOT, "build", "peers"))
    parser.add_argument("--docs", action="store_true", help="also write docs/performance.md's table")
    parser.add_argument("--render", metavar="FILE", help="write from an earlier generation.json, measuring nothing")
    args = parser.parse_args()
    if not args.render and not args.model:
        parser.error("expected MODEL")
    if args.render:
        with open(args.render) as f:
            document = json.load(f)
    else:
        document = measure(args)
    table = report.save(document, markdown, "generation", args.output)
    if args.docs:
        report.publish(table, "generation")
    print(table)


main()
