#!/usr/bin/env python3
"""Transfers with the nvme tier against fio: the same folder, block size and queue depth, O_DIRECT, in turn.

    bench/transfers.py [FOLDER] [--rounds 3] [--seconds 3] [--mebibytes 1024] [--docs]

Needs fio (Debian's package) and build/release/bench/bench_transfers. Prints GB/s, medians over rounds, and the ratio; with
--docs the table goes into docs/performance.md too.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from heddle_program import write_between_marks  # noqa: E402

SHAPES = [(1 << 20, 8), (1 << 20, 32), (256 << 10, 32)]  # block size and depth; the first is the default


def fio(folder, block, depth, options):
    rates = {}
    name = os.path.join(folder, "heddle-fio.dat")
    try:
        for direction in ("write", "read"):  # the first call lays the file out
            for seconds in ([0, options.seconds] if direction == "write" else [options.seconds]):
                length = ["--time_based", "--runtime=%g" % seconds] if seconds else []
                out = subprocess.run(
                    ["fio", "--name=t", "--filename=" + name, "--size=%dM" % options.mebibytes, "--rw=" + direction, "--bs=%d" % block,
                     "--iodepth=%d" % depth, "--ioengine=io_uring", "--direct=1", "--output-format=json", *length],
                    check=True, capture_output=True, text=True).stdout
                rates[direction] = json.loads(out[out.index("{"):])["jobs"][0][direction]["bw_bytes"] / 1e9
    finally:
        if os.path.exists(name):
            os.remove(name)
    return rates


def heddle(folder, block, depth, options, queue):
    out = subprocess.run([options.program, folder, str(block), str(depth), str(options.mebibytes), str(options.seconds), queue],
                         check=True, capture_output=True, text=True).stdout
    return {line.split()[1]: float(line.split()[2]) for line in out.splitlines()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=tempfile.gettempdir())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/bench/bench_transfers"))
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args()
    lines = ["| block, depth | direction | fio, GB/s | io_uring | of fio | threads | of fio |", "|---|---|---|---|---|---|---|"]
    for block, depth in SHAPES:
        rates = {"fio": [], "io_uring": [], "threads": []}
        for _ in range(options.rounds):
            rates["fio"].append(fio(options.folder, block, depth, options))
            for queue in ("io_uring", "threads"):
                rates[queue].append(heddle(options.folder, block, depth, options, queue))
        for direction in ("write", "read"):
            median = {name: statistics.median(r[direction] for r in rounds) for name, rounds in rates.items()}
            lines.append("| %d KiB, %d | %s | %.2f | %.2f | %.0f%% | %.2f | %.0f%% |" % (
                block >> 10, depth, direction, median["fio"], median["io_uring"], 100 * median["io_uring"] / median["fio"],
                median["threads"], 100 * median["threads"] / median["fio"]))
    print("\n".join(lines))
    if options.docs:
        write_between_marks("performance.md", "bench/transfers.py", "\n".join(lines))


main()
