#!/usr/bin/env python3
"""Heddle against PyTorch and llm.c, side by side in one run: training speed and peak memory on this machine's CPU.

    bench/peers.py --rounds 3                  all works, all programs; up to an hour on two cores
    bench/peers.py --rounds 1 --only llama-15m --skip-compile
    bench/peers.py --llm_c FOLDER              beside llm.c too, built from a clone of it
    bench/peers.py --only gpt2-124m --update FILE.json         the other works' figures stay as an earlier run wrote them
    bench/peers.py --render FILE.json --docs   only writes the table and the picture again

Works: gpt2-124m, llama-15m, smollm2-135m. In each round every program trains in turn, in a process of its own, on the same random ids:
a few warm-up steps, then the steps that count. Rounds alternate, since a machine's speed drifts; only ratios from one run count.
PyTorch's side is bench/peers/torch_models.py, in the environment that scripts/peer_environment makes. Memory is the process's
greatest resident size. Writes peers.json, peers.md and peers.svg into --output; --docs puts them into docs/ too.
"""
import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "peers"))
import contenders  # noqa: E402
import llm_c  # noqa: E402
import report  # noqa: E402
from workloads import SEQUENCE, WORKLOADS, write_workload  # noqa: E402

QUIET = 0.1  # cores that other programs may use before it is worth a word: threads that spin for each other then lose far more
PICTURE = "![Tokens per second and peak memory of Heddle and PyTorch](images/peers.svg)"
BEGIN, END = "<!-- bench/peers.py: begin -->", "<!-- bench/peers.py: end -->"


def first_line(path, key):
    with open(path) as f:
        return next((line.partition(":")[2].strip() for line in f if line.startswith(key)), "")


def simd(flags):
    known = (("amx_bf16", "AMX-BF16"), ("avx512_bf16", "AVX-512-BF16"), ("avx512f", "AVX-512"), ("avx2", "AVX2"), ("bf16", "bf16"), ("sve", "SVE"), ("asimd", "NEON"))
    return ", ".join(name for flag, name in known if flag in flags) or "no SIMD known here"


def flags():
    return (first_line("/proc/cpuinfo", "flags") or first_line("/proc/cpuinfo", "Features")).split()


def machine():
    return {"cpu": first_line("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(), "cores": len(os.sched_getaffinity(0)), "simd": simd(flags()),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "system": platform.platform()}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def versions(python):
    commit = output_of("git", "rev-parse", "--short", "HEAD")
    changed = "+" if output_of("git", "status", "--porcelain", "--untracked-files=no", "--", "src") else ""
    torch = output_of(python, "-c", "from importlib.metadata import version; print(version('torch'))")
    return {"Heddle": commit + changed, "PyTorch": torch, "Python": output_of(python, "-c", "import platform; print(platform.python_version())")}


def chosen_contenders(args):
    # Without instructions for it, PyTorch's bf16 takes minutes a step.
    slow_bf16 = not {"amx_bf16", "avx512_bf16", "bf16"} & set(flags())
    found = contenders.contenders(args.skip_compile, args.skip_bf16_peer or slow_bf16, args.transformers, args.llm_c)
    return [c for c in found if not args.programs or c.name in args.programs]


def run_round(work, workload, programs, folder, args, setup):
    """Every program once, in turn. A program that failed is not tried again; the others go on."""
    for c in programs:
        if c.only and WORKLOADS[c.only] is not workload:
            continue
        entry = work["contenders"].setdefault(c.name, {"label": c.label, "precision": c.precision, "is_heddle": c.is_heddle, "rounds": []})
        if any("error" in r for r in entry["rounds"]):
            continue
        try:
            got = contenders.measure(c, workload, folder, args.warmup + args.steps, setup)
        except contenders.Failed as e:
            entry["rounds"].append({"error": str(e)})
            print("  %-24s failed: %s" % (c.name, e), flush=True)
            continue
        got["tokens_per_second"] = [workload["rows"] * SEQUENCE / s for s in got.pop("seconds")]
        entry["rounds"].append(got)
        counted = got["tokens_per_second"][args.warmup:]
        busy = "; others used %.1f cores" % got["busy_elsewhere"] if got["busy_elsewhere"] > QUIET else ""
        print("  %-24s %8.0f tokens/s (best %.0f), %.2f GiB, loss %.3f to %.3f%s" % (
            c.name, report.median(counted), max(counted), got["peak_rss"] / report.GIB, got["losses"][0], got["losses"][-1], busy), flush=True)
    same_work(work)


def same_work(work):
    """All programs must train as many parameters and, from the same kind of start, begin with about the same loss."""
    rounds = [c["rounds"][-1] for c in work["contenders"].values() if "error" not in c["rounds"][-1]]
    sizes, starts = {r["num_parameters"] for r in rounds}, [r["losses"][0] for r in rounds]
    if len(sizes) > 1 or (starts and max(starts) - min(starts) > 0.1):
        sys.exit("peers.py: the programs do not do the same work: %s parameters, first losses %s" % (sorted(sizes), starts))


def write_results(document, output, docs):
    os.makedirs(output, exist_ok=True)
    table, picture = report.markdown(document), report.svg(document)
    for name, text in (("peers.json", json.dumps(document, indent=1) + "\n"), ("peers.md", table + "\n"), ("peers.svg", picture)):
        with open(os.path.join(output, name), "w") as f:
            f.write(text)
    if docs:
        page = os.path.join(ROOT, "docs", "performance.md")
        with open(page) as f:
            before, _, rest = f.read().partition(BEGIN)
        with open(page, "w") as f:
            f.write(before + BEGIN + "\n\n" + table + "\n\n" + PICTURE + "\n\n" + END + rest.partition(END)[2])
        with open(os.path.join(ROOT, "docs", "images", "peers.svg"), "w") as f:
            f.write(picture)
    return table


def measure(args):
    python = output_of(os.path.join(ROOT, "scripts", "peer_environment"))
    if not python or not os.path.exists(args.heddle):
        sys.exit("peers.py: %s" % ("scripts/peer_environment failed" if not python else "%s is not built" % args.heddle))
    os.makedirs(args.output, exist_ok=True)
    try:
        setup = contenders.Setup(os.path.abspath(args.heddle), python, args.threads, args.timeout, os.path.abspath(llm_c.build(args.llm_c, args.output)) if args.llm_c else "")
    except RuntimeError as e:
        sys.exit("peers.py: %s" % e)
    programs = chosen_contenders(args)
    document = {"machine": {**machine(), "threads": args.threads}, "workloads": {}}
    if args.update:
        with open(args.update) as f:
            earlier = json.load(f)
        if earlier["machine"] != document["machine"]:
            sys.exit("peers.py: %s is of another machine or number of threads" % args.update)
        document = earlier
    run = {"date": datetime.date.today().isoformat(), "versions": versions(python), "rounds": args.rounds, "steps": args.steps, "warmup": args.warmup, "sequence": SEQUENCE}
    for name in args.only or WORKLOADS:
        workload = WORKLOADS[name]
        work = document["workloads"][name] = {"title": "%s, batch %d x %d" % (workload["title"], workload["rows"], SEQUENCE), "run": run, "contenders": {}}
        with tempfile.TemporaryDirectory(prefix="heddle-peers-") as folder:
            write_workload(workload, args.warmup + args.steps, os.path.join(folder, "config.json"), os.path.join(folder, "rows.jsonl"))
            for r in range(args.rounds):
                print("%s, round %d of %d" % (name, r + 1, args.rounds), flush=True)
                run_round(work, workload, programs, folder, args, setup)
                write_results(document, args.output, False)  # what is measured stays, should the rest be stopped
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "release", "src", "heddle"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="steps of a round that count")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them that do not")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", choices=sorted(WORKLOADS), help="this work only; may be given again")
    parser.add_argument("--programs", action="append", help="this program only (heddle, torch, ...); may be given again")
    parser.add_argument("--skip-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--skip-bf16-peer", action="store_true", help="without PyTorch's autocast to bf16")
    parser.add_argument("--transformers", action="store_true", help="also transformers' own model classes")
    parser.add_argument("--llm_c", metavar="FOLDER", help="also llm.c, built from this clone of it; GPT-2 alone")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of one program in one round")
    parser.add_argument("--output", default=os.path.join(ROOT, "build", "peers"))
    parser.add_argument("--docs", action="store_true", help="also write docs/performance.md's table and docs/images/peers.svg")
    parser.add_argument("--update", metavar="FILE", help="an earlier peers.json of this machine, whose other works' figures stay")
    parser.add_argument("--render", metavar="FILE", help="write from an earlier peers.json, measuring nothing")
    args = parser.parse_args()
    if args.render:
        with open(args.render) as f:
            document = json.load(f)
    else:
        document = measure(args)
    print(write_results(document, args.output, args.docs))


main()
