#!/usr/bin/env python3
"""Heddle over two ranks against PyTorch's DDP and FSDP2 (gloo) and DeepSpeed, side by side in one run on this machine's CPU.

    bench/distributed.py --rounds 3 [--docs]

Llama 15M, 2,048 tokens a step, two ranks of one thread each. In each round every program trains in turn; medians over all rounds' steps.
Memory is the greatest resident size of a rank; of Heddle's threads, the process's divided by the ranks. DeepSpeed is measured where the
peers' environment has it (pip install deepspeed). Writes distributed.json and distributed.md into --output; --docs into docs/performance.md.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "bench", "peers")]
import contenders  # noqa: E402
import report  # noqa: E402
from workloads import RECIPE, SEQUENCE, WORKLOADS, write_workload  # noqa: E402

WORK, RANKS = "llama-15m", 2
BEGIN, END = "<!-- bench/distributed.py: begin -->", "<!-- bench/distributed.py: end -->"


def programs(has_deepspeed):
    """{name: (label, run)}"""
    found = {}
    for stage in range(4):
        found["heddle-%d" % stage] = ("Heddle, stage %d, threads" % stage, lambda w, f, s, setup, stage=stage: run_heddle(w, f, s, setup, stage, False))
    if shutil.which("mpirun"):
        for stage in (0, 3):
            found["heddle-mpi-%d" % stage] = ("Heddle, stage %d, MPI" % stage, lambda w, f, s, setup, stage=stage: run_heddle(w, f, s, setup, stage, True))
    found["ddp"] = ("PyTorch DDP", lambda w, f, s, setup: run_torch(w, f, s, setup, "ddp", 0))
    found["fsdp2"] = ("PyTorch FSDP2", lambda w, f, s, setup: run_torch(w, f, s, setup, "fsdp2", 0))
    if has_deepspeed:
        for stage in range(4):
            found["deepspeed-%d" % stage] = ("DeepSpeed, stage %d" % stage, lambda w, f, s, setup, stage=stage: run_torch(w, f, s, setup, "deepspeed", stage))
    return found


def run_heddle(workload, folder, steps, setup, stage, over_mpi):
    output = os.path.join(folder, "out")
    run = {"config_name": os.path.join(folder, "config.json"), "tokenizer_name": "bytes", "train_file": os.path.join(folder, "rows.jsonl"), "packing": False,
           "shuffle": False, "max_length": SEQUENCE, "per_device_train_batch_size": workload["rows"] // RANKS, "max_steps": steps, "lr_scheduler_type": "constant",
           "threads": 1, "seed": 1, "output_dir": output, "resume_from_checkpoint": "false", "zero_stage": stage, **({} if over_mpi else {"ranks": RANKS}), **RECIPE}
    with open(os.path.join(folder, "run.json"), "w") as f:
        json.dump(run, f)
    launcher = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", str(RANKS)] if over_mpi else []
    _, process = contenders.run_child([*launcher, setup.heddle, "train", os.path.join(folder, "run.json")], setup, folder)
    with open(os.path.join(output, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    peak = process["peak_rss"] if over_mpi else process["peak_rss"] // RANKS
    return {"seconds": [m["step_time"] for m in lines], "losses": [m["loss"] for m in lines], **process, "peak_rss": peak}


def run_torch(workload, folder, steps, setup, engine, stage):
    worker = [os.path.join(ROOT, "bench", "peers", "torch_distributed.py"), "--config", os.path.join(folder, "config.json"), "--rows", os.path.join(folder, "rows.jsonl"),
              "--recipe", json.dumps(RECIPE), "--batch", str(workload["rows"]), "--steps", str(steps), "--engine", engine, "--stage", str(stage)]
    one_each = contenders.Setup(setup.heddle, setup.python, setup.threads, setup.timeout)
    os.environ["OMP_NUM_THREADS"] = "1"
    printed, process = contenders.run_child([setup.python, "-c", LAUNCH, str(RANKS), *worker], one_each, folder)
    document = [line for line in printed.splitlines() if line.startswith('{"seconds"')][-1]
    return {**process, **json.loads(document)}


# torch.distributed.run gives each worker one thread only if OMP_NUM_THREADS says so, and run_child sets it to all cores.
LAUNCH = ("import os, sys; os.environ['OMP_NUM_THREADS'] = '1'; from torch.distributed.run import main; "
          "main(['--standalone', '--nproc-per-node', sys.argv[1], *sys.argv[2:]])")


def markdown(document):
    lines = ["%s, %d ranks of one thread, %d tokens a step; %d rounds of %d steps; tokens/s median (best), peak memory of a rank." % (
        document["title"], RANKS, document["tokens"], document["rounds"], document["steps"]), "",
        "| program | tokens/s | against stage 0 | memory of a rank |", "|---|---|---|---|"]
    base = report.median(document["programs"]["heddle-0"]["tokens_per_second"]) if "heddle-0" in document["programs"] else None
    for entry in document["programs"].values():
        if not entry["tokens_per_second"]:
            lines.append("| %s | failed: %s | | |" % (entry["label"], entry["error"]))
            continue
        middle = report.median(entry["tokens_per_second"])
        lines.append("| %s | %.0f (%.0f) | %s | %.2f GiB |" % (entry["label"], middle, max(entry["tokens_per_second"]),
                                                                "%.2fx" % (middle / base) if base else "", max(entry["peak_rss"]) / report.GIB))
    return "\n".join(lines)


def write(document, args):
    os.makedirs(args.output, exist_ok=True)
    table = markdown(document)
    with open(os.path.join(args.output, "distributed.json"), "w") as f:
        json.dump(document, f, indent=1)
    with open(os.path.join(args.output, "distributed.md"), "w") as f:
        f.write(table + "\n")
    if args.docs:
        page = os.path.join(ROOT, "docs", "performance.md")
        with open(page) as f:
            text = f.read()
        before, found, rest = text.partition(BEGIN)
        if not found:
            sys.exit("distributed.py: docs/performance.md lacks %s" % BEGIN)
        with open(page, "w") as f:
            f.write(before + BEGIN + "\n\n" + table + "\n\n" + END + rest.partition(END)[2])
    print(table)



def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "release", "src", "heddle"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build", "peers-venv", "bin", "python"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--programs", action="append")
    parser.add_argument("--output", default=os.path.join(ROOT, "build", "peers"))
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--render", metavar="FILE", help="write from an earlier distributed.json, measuring nothing")
    args = parser.parse_args()
    if args.render:
        with open(args.render) as f:
            return write(json.load(f), args)
    setup = contenders.Setup(os.path.abspath(args.heddle), args.python, RANKS, args.timeout)
    has_deepspeed = os.system("%s -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(\"deepspeed\") is None)'" % args.python) == 0
    workload = WORKLOADS[WORK]
    document = {"title": workload["title"], "tokens": workload["rows"] * SEQUENCE, "rounds": args.rounds, "steps": args.steps, "programs": {}}
    with tempfile.TemporaryDirectory(prefix="heddle-distributed-") as folder:
        write_workload(workload, args.warmup + args.steps, os.path.join(folder, "config.json"), os.path.join(folder, "rows.jsonl"))
        for r in range(args.rounds):
            for name, (label, run) in programs(has_deepspeed).items():
                if args.programs and name not in args.programs:
                    continue
                entry = document["programs"].setdefault(name, {"label": label, "tokens_per_second": [], "peak_rss": []})
                shutil.rmtree(os.path.join(folder, "out"), ignore_errors=True)
                try:
                    got = run(workload, folder, args.warmup + args.steps, setup)
                except contenders.Failed as e:
                    entry["error"] = str(e)
                    print("  %-16s failed: %s" % (name, e), flush=True)
                    continue
                speeds = [document["tokens"] / s for s in got["seconds"][args.warmup:]]
                entry["tokens_per_second"] += speeds
                entry["peak_rss"].append(got["peak_rss"])
                print("  round %d %-16s %8.0f tokens/s (best %.0f), %.2f GiB, loss %.3f; others used %.1f cores" % (
                    r + 1, name, report.median(speeds), max(speeds), got["peak_rss"] / report.GIB, got["losses"][-1], got["busy_elsewhere"]), flush=True)
    write(document, args)


main()
