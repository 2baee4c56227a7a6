#!/usr/bin/env python3
"""Conversations into ids: Heddle, chat template and labels included, against PyPI `tokenizers` alone, on the same cores.

    bench/conversations.py MODEL_FOLDER --data ../shared/data [--megabytes 100] [--heddle build/release/src/heddle] [--folder FOLDER] [--docs]

Makes a file of conversations of two to six turns out of the books, pages and answers of the data, and their texts by the model's chat template. Then in turn
Heddle reads the file from JSON to ids and labels (`heddle data`, without a cache; the clock runs over the whole process), and `tokenizers` encodes the
finished texts with encode_batch on as many threads. Both must come to as many tokens. --folder keeps the files, and takes those that are there: prepare on a busy
machine, measure on a quiet one. --docs puts the result into docs/tokenizers.md.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from heddle_program import DEFAULT_PROGRAM, Heddle, write_between_marks, write_json  # noqa: E402

BATCH = 2000
CASES = {"every token": {}, "`assistant_only_loss`": {"assistant_only_loss": True}}


def paragraphs(data):
    """Texts of the reference data, some sentences each."""
    texts = []
    for name in ("gutenberg/war-and-peace.txt", "llamafactory/wiki_demo.txt"):
        with open(os.path.join(data, "datasets", name), encoding="utf-8") as f:
            texts += re.split(r"\n\s*\n", f.read())
    for name in ("llamafactory/c4_demo.jsonl", "llamafactory/alpaca_en_demo.json"):
        with open(os.path.join(data, "datasets", name), encoding="utf-8") as f:
            text = f.read()
        rows = json.loads(text) if name.endswith(".json") else map(json.loads, text.splitlines())
        texts += [value for row in rows for value in row.values() if isinstance(value, str)]
    return [text[:2000] for text in texts if len(text) > 20]


def write_conversations(path, texts, size):
    r = random.Random(1)
    written = 0
    with open(path, "w", encoding="utf-8") as f:
        while written < size:
            turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": r.choice(texts)} for i in range(2 * r.randint(1, 3))]
            written += f.write(json.dumps({"messages": turns}, ensure_ascii=False) + "\n")


def render(heddle, model, path, target):
    """Texts of all rows, by the template, a piece of the file at a time."""
    with open(path, encoding="utf-8") as f, open(target, "w", encoding="utf-8") as out, tempfile.TemporaryDirectory() as folder:
        while lines := f.readlines(1 << 23):
            piece = os.path.join(folder, "piece.jsonl")
            with open(piece, "w", encoding="utf-8") as p:
                p.writelines(lines)
            out.writelines(json.dumps(row["text"], ensure_ascii=False) + "\n" for row in heddle.json("render", model, piece))


def measure_heddle(heddle, model, path, keys):
    with tempfile.TemporaryDirectory() as folder:
        run = {"config_name": os.path.join(model, "config.json"), "tokenizer_name": model, "train_file": path, "max_length": 100000, "packing": False,
               "dataset_cache": folder, "output_dir": folder, **keys}
        file = write_json(os.path.join(folder, "run.json"), run)
        start = time.monotonic()
        out = heddle.run("data", file, "--limit", 0)
        seconds = time.monotonic() - start
    return seconds, int(re.search(r"rows, ([\d,]+) tokens", out).group(1).replace(",", ""))


def measure_tokenizers(model, texts):
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    count = 0
    start = time.monotonic()
    for i in range(0, len(texts), BATCH):
        count += sum(len(e.ids) for e in tokenizer.encode_batch(texts[i:i + BATCH], add_special_tokens=False))
    return time.monotonic() - start, count, tokenizers.__version__


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", default=os.environ.get("HEDDLE_DATA", os.path.join(ROOT, "..", "shared", "data")))
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--folder")
    parser.add_argument("--prepare", action="store_true", help="only makes the files")
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    os.environ.update(RAYON_NUM_THREADS=str(cores), TOKENIZERS_PARALLELISM="true")
    heddle = Heddle(options.heddle)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or scratch
        os.makedirs(folder, exist_ok=True)
        rows, rendered = os.path.join(folder, "rows.jsonl"), os.path.join(folder, "texts.jsonl")
        if not os.path.exists(rendered):
            write_conversations(rows, paragraphs(options.data), options.megabytes * 1e6)
            render(heddle, options.model, rows, rendered + ".part")
            os.rename(rendered + ".part", rendered)
        if options.prepare:
            return 0
        size = os.path.getsize(rows) / 1e6
        ours = {name: measure_heddle(heddle, options.model, rows, keys) for name, keys in CASES.items()}
        with open(rendered, encoding="utf-8") as f:
            texts = [json.loads(line) for line in f]
        seconds, count, version = measure_tokenizers(options.model, texts)
    lines = ["| targets | Heddle | `tokenizers` %s | ratio |" % version, "|---|---|---|---|"]
    for name, (own, _) in ours.items():
        lines.append("| %s | %.1f s, %.0f MB/s | %.1f s, %.1f MB/s | %.1f× |" % (name, own, size / own, seconds, size / seconds, seconds / own))
    text = "\n".join(lines) + "\n\n%d conversations, %.0f MB, %d tokens; %d cores, by the clock." % (len(texts), size, count, cores)
    print(text)
    if any(own != count for _, own in ours.values()):
        print("numbers of tokens differ: %s, %d" % (ours, count))
        return 1
    if options.docs:
        write_between_marks("tokenizers.md", "bench/conversations.py", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
