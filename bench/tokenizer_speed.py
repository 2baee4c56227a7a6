#!/usr/bin/env python3
"""Heddle's tokenizers against PyPI `tokenizers`, side by side in one run: speed on a book, and whether the ids agree.

    bench/tokenizer_speed.py --build build/release --data ../shared/data --docs
    bench/tokenizer_speed.py --rounds 3 --strings 1000 TOKENIZER.json ...

In each round, of each tokenizer in turn, both encode the whole text on one thread, then Heddle on two; each loads the tokenizer
anew first, so that neither remembers words. One thread against one is measured in CPU time: on a busy machine the clock on the wall favours
whoever runs in short bursts. Two threads are compared with one by the clock on the wall, which says something on a quiet machine only. Rounds alternate,
since a machine's speed drifts; only ratios of one run count, and the median over rounds is taken. --docs puts the table into docs/tokenizers.md. Needs: pip install tokenizers. Exit code 1 if any ids differ.
"""
import argparse
import glob
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"  # theirs: one thread
os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import compare_tokenizers  # noqa: E402
import tokenizers  # noqa: E402

BEGIN, END = "<!-- bench/tokenizer_speed.py: begin -->", "<!-- bench/tokenizer_speed.py: end -->"


class Heddle:
    """A bench_tokenizer_speed that waits for its turn."""

    def __init__(self, program, tokenizer, text):
        self.process = subprocess.Popen([program, tokenizer, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError("%s: bench_tokenizer_speed does not start" % tokenizer)

    def encode(self, threads):
        self.process.stdin.write("%d\n" % threads)
        self.process.stdin.flush()
        seconds, cpu_seconds, count, digest = self.process.stdout.readline().split()
        return float(seconds), float(cpu_seconds), int(count), digest

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def name_of(path):
    name = os.path.basename(path)
    return name[:-len(".tokenizer.json")] if name.endswith(".tokenizer.json") else os.path.join(os.path.basename(os.path.dirname(path)), name)


def load_theirs(path):
    oracle = tokenizers.Tokenizer.from_file(path)
    oracle.no_padding()
    oracle.no_truncation()
    return oracle


def heddle_ids(program, tokenizer, text_path):
    command = [program, "tokenize", tokenizer, text_path, "--json", "--add_special_tokens", "false"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure(path, args, text):
    """{"name", "ours", "theirs": CPU seconds of each round, "one", "two": seconds on the wall by threads, "agrees": bool, "strings", "wrong"}"""
    found = {"name": name_of(path), "ours": [], "theirs": [], "one": [], "two": []}
    heddle = Heddle(os.path.join(args.build, "bench", "bench_tokenizer_speed"), path, args.text)
    digests = set()
    for _ in range(args.rounds):
        oracle = load_theirs(path)
        start = time.process_time()
        want = oracle.encode(text, add_special_tokens=False).ids
        found["theirs"].append(time.process_time() - start)
        for key, threads in (("one", 1), ("two", 2)):
            seconds, cpu_seconds, count, digest = heddle.encode(threads)
            found[key].append(seconds)
            if threads == 1:
                found["ours"].append(cpu_seconds)
            digests.add((count, digest))
    heddle.close()
    got = heddle_ids(args.heddle, path, args.text)
    found["agrees"] = got == want and len(digests) == 1 and digests.pop()[0] == len(want)
    r = random.Random(args.seed)
    strings = [compare_tokenizers.hard_string(r) for _ in range(args.strings)]
    found["strings"] = len(strings)
    found["wrong"] = 0
    if strings:
        want = [e.ids for e in load_theirs(path).encode_batch(strings, add_special_tokens=False)]
        got = compare_tokenizers.heddle(args.heddle, path, strings, False, False)
        found["wrong"] = sum(a != b for a, b in zip(got, want))
    return found


def table(results, args, size):
    speed = lambda seconds: "%.1f" % (size / 1e6 / statistics.median(seconds))
    # Ratios are taken within each round: what slows the machine then slows both.
    ratio = lambda a, b: statistics.median(x / y for x, y in zip(a, b))
    lines = ["| tokenizer | Heddle, MB/s | `tokenizers`, MB/s | ratio | 2 threads | ids of the book | hard strings equal |", "|---|---|---|---|---|---|---|"]
    for r in results:
        lines.append("| %s | %s | %s | %.0f× | %.2f× | %s | %d of %d |" % (
            r["name"], speed(r["ours"]), speed(r["theirs"]), ratio(r["theirs"], r["ours"]), ratio(r["one"], r["two"]),
            "equal" if r["agrees"] else "**differ**", r["strings"] - r["wrong"], r["strings"]))
    cores = len(os.sched_getaffinity(0))
    busy = os.getloadavg()[0]
    lines += ["", "%s of %.1f MB; medians of %d rounds; MB a second of CPU time, one thread each. Column \"2 threads\": Heddle's speed by the clock on two threads over that on one. `tokenizers` %s, %s, %d cores; the machine's load was %.0f%s."
              % (os.path.basename(args.text), size / 1e6, args.rounds, tokenizers.__version__, platform.machine(), cores, busy,
                 ": other programs took most of its cores, so that the scaling shows nothing here, and speeds are below those of a quiet machine" if busy > cores else "")]
    return "\n".join(lines)


def write_docs(text):
    path = os.path.join(ROOT, "docs", "tokenizers.md")
    with open(path, encoding="utf-8") as f:
        page = f.read()
    before, rest = page.split(BEGIN)
    page = before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1]
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False, encoding="utf-8") as f:
        f.write(page)
    os.chmod(f.name, 0o644)
    os.replace(f.name, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--heddle", help="the program (default: that of the build)")
    parser.add_argument("--data", default=os.environ.get("HEDDLE_DATA", os.path.join(ROOT, "..", "shared", "data")))
    parser.add_argument("--text", help="what is encoded (default: war-and-peace.txt of the data)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    args.heddle = args.heddle or os.path.join(args.build, "src", "heddle")
    args.text = args.text or os.path.join(args.data, "datasets", "gutenberg", "war-and-peace.txt")
    paths = args.tokenizers or sorted(glob.glob(os.path.join(args.data, "tokenizers", "hf_json", "*tokenizer.json"))
                                      + glob.glob(os.path.join(args.data, "tokenizers", "small", "*tokenizer.json")))
    with open(args.text, encoding="utf-8", newline="") as f:
        text = f.read()
    results = []
    for path in paths:
        results.append(measure(path, args, text))
        print("%(name)s: theirs %(theirs)s, ours %(ours)s, on the wall %(one)s, two threads %(two)s, agrees %(agrees)s, %(wrong)d of %(strings)d strings differ" % results[-1], flush=True)
    lines = table(results, args, os.path.getsize(args.text))
    print(lines)
    if args.docs:
        write_docs(lines)
    sys.exit(any(not r["agrees"] or r["wrong"] for r in results))


if __name__ == "__main__":
    main()
