#!/usr/bin/env python3
"""Memory of a training step by the length of its context: planned for each length, and what the process held where it was trained.

    bench/long_context.py [--trained-to 32768] [--docs]

A small Llama (hidden size 128, two query heads of 64 on one key-value head, 2 layers, vocabulary 32,000), one row of random bytes, f32, with
recompute none, selective and full, and full with tiled_mlp. One step is trained at each length up to --trained-to. Writes long_context.json and long_context.md into
--output; --docs into docs/performance.md.
"""
import argparse
import json
import os
import random
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "bench", "peers")]
import contenders  # noqa: E402
import report  # noqa: E402

MIB = 1 << 20
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "vocab_size": 32000, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
         "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}
LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
RECOMPUTE = {"none": {"recompute": "none"}, "selective": {"recompute": "selective"}, "full": {"recompute": "full"},
             "full, tiled_mlp": {"recompute": "full", "tiled_mlp": True}}


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


def measure(length, recompute, trains, setup):
    """Planned peak and, where a step is trained, greatest resident size and seconds of the step."""
    with tempfile.TemporaryDirectory(prefix="heddle-long-") as folder:
        letters = "".join(random.Random(length).choices("abcdefghij ", k=length + 1))
        output = os.path.join(folder, "out")
        run = {"config_name": write(os.path.join(folder, "config.json"), json.dumps(MODEL)), "tokenizer_name": "bytes", "packing": False, "max_length": length,
               "train_file": write(os.path.join(folder, "rows.jsonl"), json.dumps({"text": letters}) + "\n"), "per_device_train_batch_size": 1,
               "gradient_accumulation_steps": 1, "max_steps": 1, **RECOMPUTE[recompute], "threads": setup.threads, "output_dir": output}
        path = write(os.path.join(folder, "run.json"), json.dumps(run))
        printed, _ = contenders.run_child([setup.heddle, "plan", path, "--json"], setup, folder)
        entry = {"length": length, "recompute": recompute, "planned": json.loads(printed)["ranks"][0]["tiers"]["device"]["peak"]}
        if trains:
            _, process = contenders.run_child([setup.heddle, "train", path], setup, folder)
            with open(os.path.join(output, "metrics.jsonl")) as f:
                entry.update(resident=process["peak_rss"], seconds=json.loads(f.readline())["step_time"])
        return entry


def markdown(document):
    found = {(e["length"], e["recompute"]): e for e in document["entries"]}

    def cell(length, recompute):
        e = found.get((length, recompute))
        if not e:
            return ""
        resident = " (%.0f)" % (e["resident"] / MIB) if "resident" in e else ""
        return "%.0f%s" % (e["planned"] / MIB, resident)
    return "\n".join(["| tokens | %s |" % " | ".join("recompute: %s" % r for r in RECOMPUTE), "|" + "---|" * (1 + len(RECOMPUTE)),
                      *("| %s | %s |" % ("{:,}".format(n), " | ".join(cell(n, r) for r in RECOMPUTE)) for n in LENGTHS)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "release", "src", "heddle"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trained-to", type=int, default=32768)
    parser.add_argument("--timeout", type=float, default=3600)
    parser.add_argument("--output", default=os.path.join(ROOT, "build", "peers"))
    parser.add_argument("--docs", action="store_true", help="also write docs/performance.md's table")
    args = parser.parse_args()
    setup = contenders.Setup(os.path.abspath(args.heddle), "", args.threads, args.timeout)
    document = {"model": MODEL, "entries": []}
    for length in LENGTHS:
        for recompute in RECOMPUTE:
            entry = measure(length, recompute, length <= args.trained_to, setup)
            document["entries"].append(entry)
            print("  %s" % entry, flush=True)
            table = report.save(document, markdown, "long_context", args.output)
    if args.docs:
        report.publish(table, "long_context")
    print(table)


main()
