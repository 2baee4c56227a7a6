#!/usr/bin/env python3
"""Compares Heddle with transformers on tiny models of every family and feature, and tabulates the agreement.

    scripts/compare_families.py [--heddle PROGRAM] [--goldens FOLDER] [--jobs N] [--docs] [NAME ...]

Families and rope types are those that the program itself says it supports; a family without a model is an error. Models and
values that are not yet in FOLDER (build/family_goldens) are made by make_family_goldens.py. For each model
  rows     loss of each row and of all in one stream (relative); both spellings of the configuration must give the same bits
  logits   log-probability of every id at the last place of rows (absolute)
  text     greedy ids, beyond the lengths where dynamic rope and longrope change
  train    loss and gradient norm of five steps (relative), weights after them (absolute); the same of a packed stream
  export   transformers loads what that training wrote, without a missing or surplus tensor: rows and logits once more
transformers computes in float64, Heddle in float32. Every difference must be at most 1e-5. Prints a line a model, then the table family x feature; --docs writes both tables of
docs/families.md. Closes with "N passed, N failed".
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import peer_python

peer_python.require("torch", "transformers", "safetensors")

import torch
import transformers
from safetensors.torch import load_file

import family_cases
from heddle_program import DEFAULT_PROGRAM, ROOT, Difference, Heddle, read_json, read_rows, row_losses, rows_of_each_id, write_between_marks, \
    write_json, write_rows
from make_family_goldens import in_float64, logits_of, nll

BOUND = 1e-5
MEASURES = ("rows", "logits", "train", "weights", "export")
TORCH = threading.Lock()  # in_float64 is of the whole process


def supported(heddle):
    """Families and rope types, as the program names them when it refuses others."""
    with tempfile.TemporaryDirectory() as scratch:
        config = os.path.join(scratch, "config.json")
        decoder = {k: v for k, v in family_cases.DECODER.items() if v is not None}
        families = heddle.error("plan", write_json(config, dict(decoder, model_type="?")))
        ropes = heddle.error("plan", write_json(config, dict(decoder, model_type="llama", rope_scaling={"rope_type": "?"})))
    families = re.search(r"supported are ([\w, ]+)", families).group(1).split(", ")
    ropes = [t for t in re.search(r"expected (?:one of )?([^;]*)", ropes).group(1).replace(" or ", ", ").split(", ") if t != "su"]
    return families, ropes


def bounded(differences, measure, what, got, want, relative=True):
    difference = abs(got - want) / (abs(want) if relative else 1.0)
    differences[measure] = max(differences.get(measure, 0.0), difference)
    if not difference <= BOUND:
        raise Difference("%s %.9g, transformers %.9g (difference %.1e)" % (what, got, want, difference))


def compare_rows(heddle, model, rows, want, log_p, scratch, differences, measures):
    """Losses of the rows, one by one and all in one stream, and the log-probabilities `log_p` {row: [of each id]}."""
    asked = list(rows)
    for row, values in log_p.items():
        asked += rows_of_each_id(rows[int(row)]["input_ids"], len(values))
    losses = row_losses(heddle, model, asked, scratch)
    whole = heddle.json("eval", model, "--data", write_rows(os.path.join(scratch, "rows.jsonl"), rows))
    total = [sum(column) for column in zip(*want)]
    for name, (loss, targets), (nll, wanted) in zip(["row %d" % (i + 1) for i in range(len(rows))] + ["all rows"],
                                                    losses[:len(rows)] + [(whole["loss"], whole["num_tokens"])], want + [total]):
        if targets != wanted:
            raise Difference("%s: %d targets, transformers %d" % (name, targets, wanted))
        bounded(differences, measures[0], "loss of " + name, loss, nll / wanted)
    for i, ((loss, _), value) in enumerate(zip(losses[len(rows):], [v for values in log_p.values() for v in values])):
        bounded(differences, measures[1], "log-probability %d" % i, -loss, value, relative=False)


def compare_spellings(heddle, folder, scratch):
    """The whole file under the two spellings of one configuration."""
    model = os.path.join(scratch, "v4")
    os.makedirs(model)
    shutil.copy(os.path.join(folder, "model.safetensors"), model)
    shutil.copy(os.path.join(folder, "config_v4.json"), os.path.join(model, "config.json"))
    data = os.path.join(folder, "rows.jsonl")
    new, old = (heddle.json("eval", m, "--data", data)["loss"] for m in (folder, model))
    if new != old:
        raise Difference("loss %.17g, with transformers 4's spelling of the config %.17g" % (new, old))


def compare_text(heddle, folder, want):
    ids = heddle.json("generate", folder, "--tokenizer_name", "bytes", "--prompt", want["prompt"], "--max_new_tokens", len(want["ids"]))["ids"]
    new = ids[len(want["prompt"]):]
    if new != want["ids"]:
        at = next((i for i, (a, b) in enumerate(zip(new, want["ids"])) if a != b), min(len(new), len(want["ids"])))
        raise Difference("greedy id %d is %s, transformers' %s" % (at + 1, new[at:at + 1], want["ids"][at:at + 1]))
    return len(new)


def compare_training(heddle, folder, want, final, scratch, name, differences):
    out = os.path.join(scratch, name)
    run = {**want["run"], "model_name_or_path": folder, "train_file": os.path.join(folder, "rows.jsonl"), "output_dir": out}
    heddle.run("train", write_json(os.path.join(scratch, name + ".json"), run))
    steps = [s for s in read_rows(os.path.join(out, "metrics.jsonl")) if "loss" in s]
    counts = [s["num_supervised_tokens"] for s in steps]
    if counts != want["num_supervised_tokens"]:
        raise Difference("%s: supervised tokens %s, expected %s" % (name, counts, want["num_supervised_tokens"]))
    for key in ("loss", "grad_norm"):
        for k, (step, value) in enumerate(zip(steps, want[key])):
            bounded(differences, "train", "%s: %s of step %d" % (name, key, k + 1), step[key], value)
    with TORCH:
        got, reference = load_file(os.path.join(out, "model.safetensors")), load_file(os.path.join(folder, final))
        if sorted(got) != sorted(reference):
            raise Difference("%s: tensors differ: %s" % (name, sorted(set(got) ^ set(reference))[:3]))
        for tensor, value in reference.items():
            difference = (got[tensor].double() - value.double()).abs().max().item()
            bounded(differences, "weights", "%s: %s" % (name, tensor), difference, 0.0, relative=False)
    return out


def reference_of_export(folder, rows):
    """What transformers computes on a folder that Heddle wrote."""
    with TORCH, torch.no_grad():
        loaded, report = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                                           output_loading_info=True)
        wrong = {kind: keys for kind, keys in report.items() if keys}
        if wrong:
            raise Difference("from_pretrained reports %s" % wrong)
        with in_float64():
            model = transformers.AutoModelForCausalLM.from_config(loaded.config, attn_implementation="eager").double().eval()
            model.load_state_dict({k: v.double() for k, v in loaded.state_dict().items()})
            sums = [nll(model, row) for row in rows]
            return [(s.item(), n) for s, n in sums], logits_of(model, rows[0]["input_ids"])[-2].log_softmax(-1).tolist()


def compare(heddle, folder):
    """The greatest difference of each measure; raises at the first that is too great."""
    want, rows, differences = read_json(os.path.join(folder, "expected.json")), read_rows(os.path.join(folder, "rows.jsonl")), {}
    with tempfile.TemporaryDirectory() as scratch:
        losses = [(r["nll"], r["num_targets"]) for r in want["rows"]]
        compare_rows(heddle, folder, rows, losses, want["log_probabilities"], scratch, differences, ("rows", "logits"))
        compare_spellings(heddle, folder, scratch)
        tokens = compare_text(heddle, folder, want["text"])
        out = compare_training(heddle, folder, want["train"], "final.safetensors", scratch, "train", differences)
        compare_training(heddle, folder, want["packed"], "packed.safetensors", scratch, "packed", differences)
        losses, log_p = reference_of_export(out, rows)
        compare_rows(heddle, out, rows, losses, {0: log_p}, scratch, differences, ("export", "export"))
    return {**differences, "tokens": tokens}


def worst(results, measures=MEASURES):
    return max(r[m] for r in results for m in measures)


def agreement_table(families, results):
    """Features down, families across; a cell is the greatest difference of any measure in any model that has both."""
    features = sorted({f for r in results for f in r["features"]}, key=lambda f: (not f.startswith("rope"), f))
    lines = ["| | %s |" % " | ".join(families), "|---|%s" % ("---|" * len(families))]
    for feature in features:
        cells = []
        for family in families:
            of = [r for r in results if r["family"] == family and feature in r["features"]]
            cells.append("" if not of else "**differs**" if any("error" in r for r in of) else "%.0e" % worst(of))
        lines.append("| %s | %s |" % (feature, " | ".join(cells)))
    return "\n".join(lines)


def measure_table(families, results):
    lines = ["| family | models | %s | greedy ids |" % " | ".join(MEASURES), "|---|%s" % ("---|" * (len(MEASURES) + 2))]
    for family in families:
        of = [r for r in results if r["family"] == family]
        sound = [r for r in of if "error" not in r]
        cells = ["%.0e" % worst(sound, (m,)) if sound else "" for m in MEASURES]
        made = sum(r["tokens"] for r in sound)
        failed = "" if len(sound) == len(of) else ", **%d differ**" % (len(of) - len(sound))
        lines.append("| %s | %d%s | %s | %d of %d |" % (family, len(of), failed, " | ".join(cells), made, made))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--goldens", default=os.path.join(ROOT, "build", "family_goldens"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/families.md")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    heddle = Heddle(args.heddle)
    families, rope_types = supported(heddle)
    cases = [(n, c) for n, c in family_cases.cases(families, rope_types) if not args.names or n in args.names]
    absent = [n for n, _ in cases if not os.path.exists(os.path.join(args.goldens, n, "expected.json"))]
    if absent:
        maker = os.path.join(ROOT, "scripts", "make_family_goldens.py")
        subprocess.run([sys.executable, maker, args.goldens, "--families", ",".join(families), "--rope_types", ",".join(rope_types)] + absent, check=True)

    def result(case):
        name, config = case
        found = {"name": name, "family": config["model_type"], "features": family_cases.features_of(config)}
        try:
            found.update(compare(heddle, os.path.join(args.goldens, name)))
            line = "%s, %d greedy ids" % (", ".join("%s %.0e" % (m, found[m]) for m in MEASURES), found["tokens"])
        except Exception as e:  # one model's failure must not hide the others'
            found["error"] = str(e) if isinstance(e, Difference) else "%s: %s" % (type(e).__name__, str(e)[:200])
            line = "DIFFERS: " + found["error"]
        print("%-22s %s  [%s]" % (name, line, ", ".join(found["features"])), flush=True)
        return found

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(result, cases))
    versions = "transformers %s, torch %s." % (transformers.__version__, torch.__version__)
    print("\n" + agreement_table(families, results) + "\n\n" + measure_table(families, results) + "\n")
    if args.docs:
        write_between_marks("families.md", "compare_families", "%s\n\n%s\n\n%s" % (versions, agreement_table(families, results),
                                                                                  measure_table(families, results)))
    failed = sum("error" in r for r in results)
    print("%d passed, %d failed" % (len(results) - failed, failed))
    return 1 if failed else 0


sys.exit(main())
