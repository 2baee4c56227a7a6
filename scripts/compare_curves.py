#!/usr/bin/env python3
"""Loss curves of LoRA and QLoRA on conversations beside those of PEFT + transformers (+ bitsandbytes): same start, same rows in the same order, in fp32.

    $(scripts/peer_environment) scripts/compare_curves.py MODEL_FOLDER FILE... [--name Heddle] [--author TEXT] [--steps 30] [--heddle build/release/src/heddle] [--docs]

FILE is a dataset as `train_file` takes it, such as identity.json ({{name}} and {{author}} in it are filled in). Rows are what `heddle data` makes of it by
the model's chat template, targets in what the assistant says; scripts/compare_rows.py compares these with TRL's. Each step takes two rows. The adapter that
was trained on the first file is then asked who it is. --docs puts table and conversation into docs/how-to/fine-tune-a-chat-model.md.
"""
import argparse
import os
import sys
import tempfile

from compare_peft import heddle_steps, peft_steps
from heddle_program import DEFAULT_PROGRAM, Heddle, write_between_marks, write_json

CASES = {"LoRA": {"target_modules": "all-linear"}, "QLoRA, NF4": {"target_modules": "all-linear", "quant": "nf4"}}
QUESTIONS = ["Who are you?", "Who created you?"]


def prepared(path, options, folder):
    """The file with its placeholders filled in."""
    with open(path) as f:
        text = f.read().replace("{{name}}", options.name).replace("{{author}}", options.author)
    target = os.path.join(folder, os.path.basename(path))
    with open(target, "w") as f:
        f.write(text)
    return target


def rows_of(heddle, path, options, folder):
    run = {"model_name_or_path": options.model, "train_file": path, "max_length": options.max_length, "assistant_only_loss": True, "packing": False, "output_dir": folder}
    rows = heddle.json("data", write_json(os.path.join(folder, "data.json"), run), "--limit", 2 * options.steps)
    return [{"input_ids": row["input_ids"], "labels": row["labels"]} for row in rows[:2 * options.steps]]


def conversation(heddle, model, adapter):
    lines = []
    for question in QUESTIONS:
        for who, path in (("before", model), ("after", adapter)):
            answer = heddle.json("generate", path, "--chat", "--prompt", question, "--max_new_tokens", 40)["text"]
            lines.append("    %s, %s: %s" % (question, who, " ".join(answer.split())))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--name", default="Heddle")
    parser.add_argument("--author", default="the Heddle team")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args()
    heddle = Heddle(options.heddle)
    shown = [0, options.steps // 3, 2 * options.steps // 3, options.steps - 1]
    table = ["| rows | adapter | loss at step %s | greatest difference of a loss | of a gradient norm, relative |" % ", ".join(str(step + 1) for step in shown), "|---|---|---|---|---|"]
    said, worst = "", 0.0
    for path in options.files:
        for name, case in CASES.items():
            with tempfile.TemporaryDirectory() as folder:
                rows = rows_of(heddle, prepared(path, options, folder), options, folder)
                steps = len(rows) // 2
                start = os.path.join(folder, "start")
                want = peft_steps(options.model, rows, steps, case, start)
                got = heddle_steps(options.heddle, options.model, rows, steps, case, start, folder)
                if not said:
                    said = conversation(heddle, options.model, os.path.join(folder, "out"))
            loss = max(abs(a - b) for a, b in zip(got[0], want[0]))
            norm = max(abs(a / b - 1) for a, b in zip(got[1], want[1]))
            worst = max(worst, loss)
            curve = ", ".join("%.3f" % got[0][min(step, steps - 1)] for step in shown)
            table.append("| `%s` | %s | %s | %.1e | %.1e |" % (os.path.basename(path), name, curve, loss, norm))
            print(table[-1], flush=True)
    text = "\n".join(table) + "\n\n" + said
    print(text)
    if options.docs:
        write_between_marks("how-to/fine-tune-a-chat-model.md", "compare_curves", text)
    return worst > 1e-3


if __name__ == "__main__":
    sys.exit(main())
