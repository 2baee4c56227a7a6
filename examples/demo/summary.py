#!/usr/bin/env python3
"""Shows a finished run in the terminal: summary.py OUTPUT_DIR. The loss as a curve, memory as planned and as held."""
import json
import math
import sys
from pathlib import Path

BLOCKS = " ▁▂▃▄▅▆▇█"
CLASSES = ("parameters", "master_weights", "gradients", "optimizer_states", "activations", "workspace",
           "communication", "data")


def curve(values, width=64, height=8):
    """Lines of a column chart: column i is the mean of the i-th part of the values."""
    width = min(width, len(values))
    parts = [values[i * len(values) // width:(i + 1) * len(values) // width] for i in range(width)]
    means = [sum(part) / len(part) for part in parts]
    low, high = 0.0, max(means)
    for row in reversed(range(height)):
        cells = "".join(BLOCKS[min(8, max(0, round((m - low) / (high - low) * height * 8) - row * 8))] for m in means)
        label = f"{high:6.2f}" if row == height - 1 else f"{low:6.2f}" if row == 0 else ""
        yield f"{label:>6} │{cells}"


def memory(plan, held):
    """Rows of the table of planned and held bytes at the peak of the first rank's device tier."""
    planned, measured = (d["ranks"][0]["tiers"]["device"] for d in (plan, held))
    yield f"{'memory in bytes':<20}{'planned':>16}{'held':>16}"
    for name in CLASSES:
        a, b = (tier["at_peak"].get(name, 0) for tier in (planned, measured))
        if a or b:
            yield f"{name:<20}{a:>16,}{b:>16,}{'' if a == b else '  DIFFERENT'}"
    a, b = planned["peak"], measured["peak"]
    yield f"{'peak':<20}{a:>16,}{b:>16,}{'  equal' if a == b else '  DIFFERENT'}"


def main():
    folder = Path(sys.argv[1])
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row.get("loss") is not None]
    evaluations = [row for row in rows if "eval_loss" in row]
    print(f"training loss by step, 1 to {len(losses)}: from {losses[0]:.3f} to {losses[-1]:.3f}")
    print("\n".join(curve(losses)))
    for row in evaluations:
        bits = row["eval_loss"] / math.log(2)
        print(f"step {row['step']:>5}: loss on held-out text {row['eval_loss']:.3f} ({bits:.2f} bits a byte)")
    print()
    print("\n".join(memory(*(json.loads((folder / name).read_text()) for name in ("plan.json", "memory.json")))))


main()
