#!/usr/bin/env python3
"""What a checkpoint costs: Heddle's saves, at once and asynchronous, against torch.save and torch.distributed.checkpoint, on one disk in one run.

    bench/checkpoints.py MODEL --heddle build/release/src/heddle --files build/release/bench/bench_checkpoint_files --write-docs

MODEL is a Hugging Face folder, such as SmolLM2-135M, trained in fp32 with AdamW. In each round, in turn: what the disk takes and what the files of a
checkpoint get of it; a run of Heddle that saves nothing, one that saves at once and one with save_async, every second step; torch's saves of the
same model with AdamW. What training waits for a save of Heddle is what its step loop measured, and for save_async also the processor time of the
writing threads divided by the run's threads, as if it were all taken from the steps: on a machine that others use too, steps differ by more than that.
Prints a Markdown table of medians, for bandwidth of the best; --write-docs puts it into docs/performance.md.
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

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from heddle_program import DEFAULT_PROGRAM, read_rows, write_between_marks, write_json, write_rows  # noqa: E402

KINDS = {"none": {}, "at once": {"save_steps": 2}, "save_async": {"save_steps": 2, "save_async": True}}


def say(text):
    print(text, file=sys.stderr, flush=True)


def train(args, kind, folder):
    """Of each step {seconds, checkpoint: lost to saving since the one before}; the process's greatest resident bytes; bytes of a checkpoint's state."""
    out = os.path.join(folder, "out")
    draw = random.Random(1)
    rows = write_rows(os.path.join(folder, "rows.jsonl"), [{"input_ids": [draw.randrange(10, 40000) for _ in range(args.length)]} for _ in range(args.batch)])
    run = {"model_name_or_path": args.model, "train_file": rows, "max_length": args.length, "packing": False, "shuffle": False, "threads": args.threads,
           "per_device_train_batch_size": args.batch, "max_steps": args.steps, "num_train_epochs": args.steps, "learning_rate": 1e-6, "output_dir": out,
           "lr_scheduler_type": "constant", "resume_from_checkpoint": False, "save_total_limit": 1, **KINDS[kind]}
    child = subprocess.Popen([args.heddle, "train", write_json(os.path.join(folder, "run.json"), run)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit("%s: %s" % (kind, said.strip().split("\n")[-1]))
    steps = [{"seconds": row["step_time"], "checkpoint": row["time"]["checkpoint"]} for row in read_rows(os.path.join(out, "metrics.jsonl")) if "loss" in row]
    size = sum(e.stat().st_size for e in os.scandir(os.path.join(out, "checkpoint-%d" % args.steps)) if e.name.startswith("state-")) if kind != "none" else 0
    shutil.rmtree(out)
    return steps, used.ru_maxrss * 1024, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--files", default=os.path.join(ROOT, "build", "release", "bench", "bench_checkpoint_files"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build", "peers-venv", "bin", "python"), help="as scripts/peer_environment makes it")
    parser.add_argument("--folder", help="on the disk to measure; default: that of temporary files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="an even number of at least 4")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--write-docs", action="store_true")
    args = parser.parse_args()
    files, runs, peers = [], {kind: [] for kind in KINDS}, {}
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="heddle-checkpoints-") as folder:
        for number in range(args.rounds):
            files.append(json.loads(subprocess.run([args.files, folder, "1536", "3"], capture_output=True, text=True, check=True).stdout))
            say("round %d files %s" % (number + 1, files[-1]))
            for kind in KINDS:
                runs[kind].append(train(args, kind, folder))
                say("round %d %s %s" % (number + 1, kind, runs[kind][-1]))
            done = subprocess.run([args.python, os.path.join(ROOT, "bench", "peers", "torch_checkpoint.py"), args.model, folder, "--rounds", "1", "--threads",
                                   str(args.threads)], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    row = json.loads(line)
                    peers.setdefault(row["kind"], []).append(row)
                    say("round %d %s" % (number + 1, row))
    report = table(args, files, runs, peers)
    print(report)
    if args.write_docs:
        write_between_marks("performance.md", "bench/checkpoints.py", report)


def table(args, files, runs, peers):
    usual = statistics.median(s["seconds"] for steps, _, _ in runs["none"] for s in steps[1:])
    base = min(peak for _, peak, _ in runs["none"])
    lines = ["| save of a model with AdamW | GB | seconds that training waits | share of a step (%.1f s) | memory more |" % usual, "|---|---|---|---|---|"]
    row = "| %s | %.2f | %.2f | %.0f%% | %.0f MiB |"
    busy = statistics.median(f["processor_seconds"] for f in files)
    for kind, saved in (("at once", "Heddle"), ("save_async", "Heddle, `save_async`")):
        # The lines up to the last step have all of each save but the last.
        waits = [sum(s["checkpoint"] for s in steps) / (args.steps // 2 - 1) for steps, _, _ in runs[kind]]
        wait = statistics.median(waits) + (busy / args.threads if kind == "save_async" else 0)
        lines.append(row % (saved, runs[kind][0][2] / 1e9, wait, 100 * wait / usual, (min(peak for _, peak, _ in runs[kind]) - base) / 2**20))
    for kind, rows in peers.items():
        stall = statistics.median(r["stall"] for r in rows)
        lines.append(row % (kind, rows[0]["bytes"] / 1e9, stall, 100 * stall / usual, min(r["extra_bytes"] for r in rows) / 2**20))
    plain, written, verified = (max(f[key] for f in files) for key in ("plain", "written", "verified"))
    share = statistics.median(f["share"] for f in files)
    lines += ["", "Files of 1.6 GB: the disk takes %.0f MB/s by plain direct writes of 4 MiB; a checkpoint's files are written, hashed and synced at %.0f MB/s (%.0f%% of "
              "that, the median of the rounds) and read again and compared at %.0f MB/s." % (plain, written, 100 * share, verified)]
    return "\n".join(lines)


main()
