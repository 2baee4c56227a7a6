#!/usr/bin/env python3
"""Heddle's LoRA and QLoRA against PEFT (with bitsandbytes for QLoRA), side by side in one run: speed and peak memory on this machine's CPU.

    bench/adapters.py MODEL --heddle build/release/src/heddle        a Hugging Face folder, such as SmolLM2-135M
    bench/adapters.py MODEL --gguf FILE.gguf                         Heddle also on the same model's GGUF file

Batch 2 x 256 random ids, r 8 on q_proj and v_proj. In each round each program takes a few steps in turn, in a process of its own; the first
does not count. Memory is the process's greatest resident size. Prints a Markdown table: medians, and ratios to PEFT's row of the same kind.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LENGTH, BATCH, RANK = 256, 2, 8


def write_rows(path, steps, vocabulary):
    draw = random.Random(1)
    with open(path, "w") as f:
        for _ in range(steps * BATCH):
            f.write(json.dumps({"input_ids": [draw.randrange(10, vocabulary) for _ in range(LENGTH)]}) + "\n")


def run_file(folder, model, rows, steps, more):
    run = {"model_name_or_path": model, "train_file": rows, "tokenizer_name": "bytes", "max_length": LENGTH, "packing": False, "shuffle": False,
           "per_device_train_batch_size": BATCH, "max_steps": steps, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "output_dir":
           os.path.join(folder, "out"), "resume_from_checkpoint": False, "lora": {"r": RANK, "lora_alpha": 2 * RANK, "target_modules": ["q_proj", "v_proj"]}, **more}
    path = os.path.join(folder, "run.json")
    with open(path, "w") as f:
        json.dump(run, f)
    return path


def heddle(args, model, rows, steps, more):
    """(tokens/s of each step but the first, peak bytes, losses)"""
    with tempfile.TemporaryDirectory() as folder:
        path = run_file(folder, model, rows, steps, {"threads": args.threads, **more})
        child = subprocess.Popen([args.heddle, "train", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        if status != 0:
            return None, said.strip().split("\n")[-1]
        with open(os.path.join(folder, "out", "metrics.jsonl")) as f:
            steps = [json.loads(line) for line in f]
        return ([s["tokens_per_second"] for s in steps[1:]], used.ru_maxrss * 1024, [s["loss"] for s in steps]), None


def peft(args, model, rows, steps, flags):
    command = [args.python, os.path.join(ROOT, "bench", "peers", "peft_train.py"), model, rows, "--steps", str(steps), "--batch", str(BATCH), "--rank",
               str(RANK), "--threads", str(args.threads), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().split("\n")[-1]
    steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return ([s["tokens"] / s["seconds"] for s in steps[1:]], steps[-1]["peak_bytes"], [s["loss"] for s in steps]), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--gguf")
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "release", "src", "heddle"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build", "peers-venv", "bin", "python"), help="as scripts/peer_environment makes it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="write every figure there")
    args = parser.parse_args()
    nf4 = {"load_in_4bit": True, "bnb_4bit_use_double_quant": True, "bf16": True}
    contenders = [("LoRA fp32", "PEFT", lambda r: peft(args, args.model, r, args.steps, [])),
                  ("LoRA fp32", "Heddle", lambda r: heddle(args, args.model, r, args.steps, {})),
                  ("LoRA bf16", "PEFT", lambda r: peft(args, args.model, r, args.steps, ["--bf16"])),
                  ("LoRA bf16", "Heddle", lambda r: heddle(args, args.model, r, args.steps, {"bf16": True})),
                  ("QLoRA NF4", "PEFT + bitsandbytes", lambda r: peft(args, args.model, r, args.steps, ["--nf4"])),
                  ("QLoRA NF4", "Heddle", lambda r: heddle(args, args.model, r, args.steps, nf4))]
    if args.gguf:
        contenders.append(("LoRA on GGUF", "Heddle", lambda r: heddle(args, args.gguf, r, args.steps, {"bf16": True})))
    with open(os.path.join(args.model, "config.json")) as f:
        vocabulary = json.load(f)["vocab_size"]
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.jsonl")
        write_rows(rows, args.steps, vocabulary)
        for number in range(args.rounds):
            for kind, program, run in contenders:
                got, error = run(rows)
                entry = measured.setdefault((kind, program), {"speeds": [], "peaks": [], "losses": [], "error": ""})
                if error:
                    entry["error"] = error
                    print("round %d %s %s failed: %s" % (number + 1, kind, program, error), file=sys.stderr)
                    continue
                entry["speeds"] += got[0]
                entry["peaks"].append(got[1])
                entry["losses"] = got[2]
                print("round %d %-12s %-20s %6.0f tokens/s %6.0f MiB" % (number + 1, kind, program, statistics.median(got[0]), got[1] / 2**20), file=sys.stderr)
    print("| work | program | tokens/s | peak memory | speed / PEFT | memory / PEFT | last loss |\n|---|---|---|---|---|---|---|")
    for (kind, program), entry in measured.items():
        if not entry["speeds"]:
            print("| %s | %s | failed: %s | | | | |" % (kind, program, entry["error"]))
            continue
        peer = measured.get((kind, "PEFT"), measured.get((kind, "PEFT + bitsandbytes")))
        speed, peak = statistics.median(entry["speeds"]), min(entry["peaks"])
        ratios = ("%.2f" % (speed / statistics.median(peer["speeds"])), "%.2f" % (peak / min(peer["peaks"]))) if peer and peer["speeds"] else ("", "")
        print("| %s | %s | %.0f | %.2f GB | %s | %s | %.4f |" % (kind, program, speed, peak / 1e9, *ratios, entry["losses"][-1]))
    if args.json:
        with open(args.json, "w") as f:
            json.dump({" / ".join(key): entry for key, entry in measured.items()}, f, indent=1)


main()
