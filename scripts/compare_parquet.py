#!/usr/bin/env python3
"""Compares rows of Parquet files with the same rows in JSON Lines, through `heddle data`: ids, labels and row numbers, equal.

    compare_parquet.py --datasets FOLDER MODEL      [--heddle PROGRAM] [--max_length N] [--only TEXT]

MODEL is a folder with config.json, a tokenizer and a chat template; FOLDER holds the data sets of compare_rows.py. Each is written as Parquet by
pyarrow (its own types, many row groups, one codec after the other) and by `datasets` (mixed types as JSON; one file, and shards in a folder), and
read by `heddle data`; and `datasets` reads it back, whose rows, written as JSON Lines, must be trained on alike. Needs: pip install pyarrow
datasets trl. Exit code 1 if anything differs.
"""
import argparse
import itertools
import json
import os
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, disable_progress_bars, load_dataset
from trl.trainer.utils import remove_none_values

from compare_rows import CASES, heddle_rows, read
from heddle_program import DEFAULT_PROGRAM, Difference, Heddle, write_rows

CODECS = itertools.cycle(["none", "snappy", "gzip", "brotli", "lz4", "zstd"])


def by_pyarrow(rows, scratch):
    path = os.path.join(scratch, "pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=max(1, len(rows) // 5), compression=next(CODECS))
    return path


def by_datasets(rows, scratch):
    path = os.path.join(scratch, "datasets.parquet")
    Dataset.from_list(rows, on_mixed_types="use_json").to_parquet(path, batch_size=100)
    return path


def by_shards(rows, scratch):
    folder, whole = os.path.join(scratch, "shards"), Dataset.from_list(rows, on_mixed_types="use_json")
    os.mkdir(folder)
    count = min(3, len(rows))
    for i in range(count):
        whole.shard(count, i, contiguous=True).to_parquet(os.path.join(folder, "train-%05d-of-%05d.parquet" % (i, count)))
    return folder


def read_back(path, scratch):
    files = os.path.join(path, "*.parquet") if os.path.isdir(path) else path
    rows = load_dataset("parquet", data_files=files, split="train", cache_dir=os.path.join(scratch, "cache"))
    return write_rows(os.path.join(scratch, "back.jsonl"), [remove_none_values(row) for row in rows])


def numbers(sources):
    return [source.rpartition(":")[2] for source in sources]


def first_difference(got, want):
    if len(got[0]) != len(want[0]):
        return "%d rows, JSON Lines have %d" % (len(got[0]), len(want[0]))
    return next(("row %d (%s)" % (i + 1, got[1][i]) for i, (a, b) in enumerate(zip(got[0], want[0])) if a != b), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--datasets", required=True)
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--max_length", type=int, default=512)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    heddle, differences = Heddle(options.heddle), 0
    disable_progress_bars()
    for name, _, own, all_keys in CASES:
        path = os.path.join(options.datasets, name)
        if options.only not in name or not os.path.exists(path):
            continue
        rows, keys = read(path), {**own, **all_keys[0]}
        for write in (by_pyarrow, by_datasets, by_shards):
            title = "%s %s %s" % (name, " ".join("%s=%s" % k for k in keys.items()), write.__name__)
            with tempfile.TemporaryDirectory() as scratch:
                of = lambda file: heddle_rows(heddle, options.model, file, keys, options.max_length, scratch)
                try:
                    parquet = write(rows, scratch)
                except pa.ArrowInvalid as e:
                    print("skip", title + ": pyarrow:", str(e).split("\n")[0][:120])
                    continue
                try:
                    got, want = of(parquet), of(write_rows(os.path.join(scratch, "rows.jsonl"), rows))
                    difference = first_difference(got, want) or first_difference(got, of(read_back(parquet, scratch)))
                    if not difference and write is not by_shards and numbers(got[1]) != numbers(want[1]):
                        difference = "other row numbers"
                except Difference as e:
                    difference = str(e)
            differences += difference is not None
            print("DIFF" if difference else "same", title + ":", difference or "%d rows, %d tokens" % (len(got[0]), sum(len(ids) for ids, _ in got[0])), flush=True)
    sys.exit(1 if differences else 0)


main()
