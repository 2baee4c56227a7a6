#!/usr/bin/env python3
"""What a checkpoint costs: Heddle's saves, at once and asynchronous, against torch.save and torch.distributed.checkpoint, on one disk in one run.

    bench/checkpoints.py MODEL --heddle build/release/src/heddle --files build/release/bench/bench_checkpoint_files --write-docs

MODEL is a Hugging Face folder, such as SmolLM2-135M, trained in fp32 with AdamW. In each round, in turn: what the disk takes and what the files of a
checkpoint get of it; a run of Heddle that saves nothing, and runs that save at once, with save_async and compressed, every second step; torch's saves of the
same model with AdamW. What training loses to a save of Heddle is taken from the clock: the time from the line of metrics.jsonl before one save to that before
the next, less that of as many steps of the run that saves nothing. So the machine must be quiet; what the step loop says that it waited is printed
beside it. Prints a Markdown table of medians, for bandwidth of the best; --write-docs puts it into docs/performance.md.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from heddle_program import DEFAULT_PROGRAM, read_rows, write_between_marks, write_json, write_rows  # noqa: E402

KINDS = {"none": {}, "at_once": {"save_steps": 2}, "save_async": {"save_steps": 2, "save_async": True},
         "zstd": {"save_steps": 2, "save_compression": "zstd"}, "zstd_async": {"save_steps": 2, "save_compression": "zstd", "save_async": True}}
NAMES = {"at_once": "Heddle", "save_async": "Heddle, `save_async`", "zstd": "Heddle, `save_compression: zstd`",
         "zstd_async": "Heddle, `zstd` and `save_async`"}


def say(text):
    print(text, file=sys.stderr, flush=True)


def train(args, kind, folder):
    """Of each step {seconds, checkpoint: lost to saving since the one before, written: when its line was}; the process's greatest resident bytes; bytes of a
    checkpoint's state."""
    out = os.path.join(folder, "out")
    draw = random.Random(1)
    rows = write_rows(os.path.join(folder, "rows.jsonl"), [{"input_ids": [draw.randrange(10, 40000) for _ in range(args.length)]} for _ in range(args.batch)])
    run = {"model_name_or_path": args.model, "train_file": rows, "max_length": args.length, "packing": False, "shuffle": False, "threads": args.threads,
           "per_device_train_batch_size": args.batch, "max_steps": args.steps, "num_train_epochs": args.steps, "learning_rate": 1e-6, "output_dir": out,
           "lr_scheduler_type": "constant", "resume_from_checkpoint": False, "save_total_limit": 1, **KINDS[kind]}
    said_file, lines = os.path.join(folder, "stderr"), os.path.join(out, "metrics.jsonl")
    with open(said_file, "w") as said:
        child = subprocess.Popen([args.heddle, "train", write_json(os.path.join(folder, "run.json"), run)], stdout=subprocess.DEVNULL, stderr=said)
    written, pid = [], 0
    while pid == 0:
        time.sleep(0.1)  # much less than a step, so that each line is seen when it is the last one
        pid, status, used = os.wait4(child.pid, os.WNOHANG)
        found = os.stat(lines).st_mtime_ns / 1e9 if os.path.exists(lines) and os.path.getsize(lines) > 0 else None
        if found is not None and found not in written:
            written.append(found)
    if status != 0:
        sys.exit("%s: %s" % (kind, open(said_file).read().strip().split("\n")[-1]))
    rows = [row for row in read_rows(lines) if "loss" in row]
    if len(written) != len(rows):
        sys.exit("%s: %d lines of metrics.jsonl were seen, %d are there" % (kind, len(written), len(rows)))
    steps = [{"seconds": row["step_time"], "checkpoint": row["time"]["checkpoint"], "written": when} for row, when in zip(rows, written)]
    size = sum(e.stat().st_size for e in os.scandir(os.path.join(out, "checkpoint-%d" % args.steps)) if e.name.startswith("state-")) if kind != "none" else 0
    shutil.rmtree(out)
    return {"steps": steps, "peak": used.ru_maxrss * 1024, "bytes": size}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--files", default=os.path.join(ROOT, "build", "release", "bench", "bench_checkpoint_files"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build", "peers-venv", "bin", "python"), help="as scripts/peer_environment makes it")
    parser.add_argument("--folder", help="on the disk to measure; default: that of temporary files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="with commas, of: files, %s, torch" % ", ".join(KINDS))
    parser.add_argument("--keep", help="a file of results, which are added to: a machine that is quiet for a minute at a time will do")
    parser.add_argument("--steps", type=int, default=8, help="an even number of at least 4")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--write-docs", action="store_true")
    args = parser.parse_args()
    only = args.only.split(",") if args.only else ["files", *KINDS, "torch"]
    results = {"files": [], "torch": [], **{kind: [] for kind in KINDS}}
    if args.keep and os.path.exists(args.keep):
        results = json.load(open(args.keep))
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="heddle-checkpoints-") as folder:
        for _ in range(args.rounds):
            for kind in only:
                found = measure(args, kind, folder)
                say("%s %s" % (kind, found))
                results[kind].append(found)
                if args.keep:
                    write_json(args.keep, results)
    report = table(results)
    print(report)
    if args.write_docs:
        write_between_marks("performance.md", "bench/checkpoints.py", report)


def measure(args, kind, folder):
    if kind in KINDS:
        return train(args, kind, folder)
    command = [args.files, folder, "1536", "3"]
    if kind == "torch":
        command = [args.python, os.path.join(ROOT, "bench", "peers", "torch_checkpoint.py"), args.model, folder, "--rounds", "1", "--threads", str(args.threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(results):
    if not results["none"]:
        return "nothing to compare with: no run of the kind `none`"
    usual = statistics.median(step for run in results["none"] for step in clock(run))
    base = min(run["peak"] for run in results["none"])
    lines = ["| save of a model with AdamW | GB | seconds that a run loses | share of a step (%.1f s) | of it waiting | memory more |" % usual, "|---|---|---|---|---|---|"]
    row = "| %s | %.2f | %.2f | %.0f%% | %s | %.0f MiB |"
    for kind, saved in NAMES.items():
        if not results[kind]:
            continue
        # A save every second step, from the line of the second one on.
        lost = statistics.median(first + second - 2 * step_beside(run, results["none"]) for run in results[kind] for first, second in zip(clock(run)[0::2], clock(run)[1::2]))
        waited = statistics.median(sum(s["checkpoint"] for s in run["steps"]) / (len(run["steps"]) // 2 - 1) for run in results[kind])
        lines.append(row % (saved, results[kind][0]["bytes"] / 1e9, lost, 100 * lost / usual, "%.2f" % waited, (min(r["peak"] for r in results[kind]) - base) / 2**20))
    peers = {}
    for peer in (peer for found in results["torch"] for peer in found):
        peers.setdefault(peer["kind"], []).append(peer)
    for kind, rows in peers.items():
        stall = statistics.median(r["stall"] for r in rows)
        lines.append(row % (kind, rows[0]["bytes"] / 1e9, stall, 100 * stall / usual, "%.2f" % stall, min(r["extra_bytes"] for r in rows) / 2**20))
    files = [found for round_files in results["files"] for found in round_files]
    if files:
        plain, written, verified = (max(f[key] for f in files) for key in ("plain", "written", "verified"))
        shares = sorted(f["share"] for f in files)
        lines += ["", "Files of 1.6 GB: the disk takes %.0f MB/s by plain direct writes of 4 MiB; a checkpoint's files are written, hashed and synced at %.0f MB/s (%.0f%% "
                  "of that, the median of %d rounds; %.0f%% in the worst) and read again and compared at %.0f MB/s. Processor time of both: %.2f s."
                  % (plain, written, 100 * statistics.median(shares), len(shares), 100 * shares[0], verified, statistics.median(f["processor_seconds"] for f in files))]
    return "\n".join(lines)


def step_beside(run, others):
    """Seconds of a step of the run that saves nothing nearest in time: a shared machine's speed drifts."""
    nearest = min(others, key=lambda other: abs(other["steps"][0]["written"] - run["steps"][0]["written"]))
    return statistics.median(clock(nearest))


def clock(run):
    """Seconds between the lines of the steps from the second on: the first touches memory for the first time."""
    written = [step["written"] for step in run["steps"][1:]]
    return [after - before for before, after in zip(written, written[1:])]


main()
