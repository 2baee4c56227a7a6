#!/usr/bin/env python3
"""Trains models with Heddle, loads what it wrote with `transformers`, and compares the two programs on the same weights.

    scripts/compare_transformers.py [--heddle PROGRAM] [--precision fp32|bf16|both] [--steps N] [--docs] [MODEL ...]

MODEL is a Hugging Face folder (default: the tiny families and stories260K of the reference data, where present, and a model of
make_family_goldens.py for each family that has none there). Each is trained for a few steps; then both programs compute, in
float32 and from the same `output_dir`,
  - the cross entropy of each row (`heddle eval` on files of one row), to a relative 1e-5,
  - the cross entropy of the whole file, to the same bound,
  - the log-probability of every id at the last place of the first row (the logits, but for a number added to all), to 1e-5,
  - greedy text (`heddle generate`), token by token,
and transformers must report no missing, surplus or misshapen tensor. With bf16 the training is in bf16 and so are the exported
weights. Last comes a model from scratch on bytes, whose tokenizer must load and give the ids of `heddle tokenize`.

Needs the packages of scripts/peer_environment, and starts itself again in that environment where they are missing.
Prints a line a model and closes with "N passed, N failed"; --docs also writes the table into docs/interchange.md.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import peer_python

peer_python.require("torch", "transformers", "tokenizers")

import tokenizers
import torch
import transformers

import family_cases
from heddle_program import DEFAULT_PROGRAM, ROOT, Difference, Heddle, read_json, read_rows, row_losses, rows_of_each_id, write_between_marks, write_json, \
    write_rows

LOSS_BOUND = 1e-5  # relative; two float32 programs that sum in different orders differ by about 1e-6 at most
LOGIT_BOUND = 1e-5  # absolute
NEW_TOKENS = 24
TRAINING = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "learning_rate": 1e-3, "lr_scheduler_type": "constant",
            "weight_decay": 0.1, "adam_beta2": 0.95, "max_grad_norm": 1.0, "shuffle": False, "packing": False, "seed": 1, "resume_from_checkpoint": "false"}

FROM_SCRATCH = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 64, "intermediate_size": 176,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "hidden_act": "silu",
                "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "bos_token_id": 256, "eos_token_id": 256, "torch_dtype": "float32"}


def rows_of_model(model, folder):
    """Rows to train and compare on, and a prompt: the model's own where it comes with some, else ids of this repository's README."""
    own, expected = os.path.join(model, "rows.jsonl"), os.path.join(model, "expected.json")
    if os.path.exists(own):
        golden = read_json(expected) if os.path.exists(expected) else {}
        return own, read_rows(own), golden.get("generate", golden.get("text", {"prompt": "The"}))["prompt"]
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        ids = tokenizer.encode(f.read()).ids
    rows = [{"input_ids": ids[i:i + 65 + 16 * (i // 64 % 3)]} for i in range(0, 512, 64)]
    return write_rows(os.path.join(folder, "rows.jsonl"), rows), rows, "Once upon a time"


def load(folder):
    """The folder as transformers sees it, in float32, with attention in its plainest form."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    wrong = {kind: keys for kind, keys in report.items() if keys}
    if wrong:
        raise Difference("from_pretrained reports %s" % wrong)
    return model.eval()


def reference_loss(model, row):
    """Sum of the negative log-likelihoods of a row's targets and their number: float32 logits, summed in float64."""
    ids = torch.tensor([row["input_ids"]])
    labels = torch.tensor(row.get("labels", row["input_ids"]))[1:]
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0, :-1].double()
    kept = labels != -100
    return torch.nn.functional.cross_entropy(logits[kept], labels[kept], reduction="sum").item(), int(kept.sum())


def compare_losses(heddle, folder, model, rows, rows_path, scratch):
    """The largest relative difference; raises where one is above the bound or a count of targets differs."""
    worst, total, targets = 0.0, 0.0, 0
    cases = []
    for i, row in enumerate(rows):
        nll, count = reference_loss(model, row)
        total, targets = total + nll, targets + count
        if count:
            cases.append(("row %d" % (i + 1), write_rows(os.path.join(scratch, "one_row.%d.jsonl" % i), [row]), nll / count, count))
    cases.append(("all rows", rows_path, total / targets, targets))
    for name, path, want, count in cases:
        got = heddle.json("eval", folder, "--data", path)
        if got["num_tokens"] != count:
            raise Difference("%s: heddle counts %d targets, transformers %d" % (name, got["num_tokens"], count))
        difference = abs(got["loss"] / want - 1)
        worst = max(worst, difference)
        if not difference <= LOSS_BOUND:
            raise Difference("%s: loss %.9g, transformers %.9g (relative %.1e)" % (name, got["loss"], want, difference))
    return worst


def compare_logits(heddle, folder, model, row, scratch):
    """The largest difference of a log-probability at the last place of the row, over all ids."""
    with torch.no_grad():
        want = model(torch.tensor([row["input_ids"]]), use_cache=False).logits[0, -2].double().log_softmax(-1).tolist()
    got = row_losses(heddle, folder, rows_of_each_id(row["input_ids"], len(want)), scratch)
    worst = max(abs(loss + value) for (loss, _), value in zip(got, want))
    if len(got) != len(want) or not worst <= LOGIT_BOUND:
        raise Difference("log-probabilities differ by %.1e" % worst)
    return worst


def compare_text(heddle, folder, model, prompt):
    """Number of new tokens that agree; raises at the first that does not."""
    path = os.path.join(folder, "tokenizer.json")
    has_tokenizer = os.path.exists(path)
    chosen = [] if has_tokenizer else ["--tokenizer_name", "bytes"]
    got = heddle.json("generate", folder, "--prompt", prompt, "--max_new_tokens", NEW_TOKENS, *chosen)["ids"]
    prompt_ids = tokenizers.Tokenizer.from_file(path).encode(prompt).ids if has_tokenizer else list(prompt.encode())
    ids = torch.tensor([prompt_ids])
    with torch.no_grad():
        want = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0)[0].tolist()
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise Difference("greedy ids differ at %d: heddle %s, transformers %s" % (at, got[at:at + 4], want[at:at + 4]))
    return len(want) - len(prompt_ids)


def compare_tokenizer(heddle, folder, vocabulary):
    """Ids of hard strings by heddle, by `tokenizers` and by AutoTokenizer."""
    texts = ["To be, or not to be", "  two  spaces\tand\r\nlines\n", "naïve café 你好 👩‍👩‍👧‍👦", "<|endoftext|>after", "\u0000\u007f\u0085", ""]
    with tempfile.TemporaryDirectory() as scratch:
        got = heddle.json("tokenize", folder, "--strings", write_json(os.path.join(scratch, "texts.json"), texts))
    plain = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    for name, want in (("tokenizers", [plain.encode(t).ids for t in texts]), ("AutoTokenizer", [auto(t)["input_ids"] for t in texts])):
        for text, a, b in zip(texts, got, want):
            if a != b:
                raise Difference("%r: heddle %s, %s %s" % (text, a[:12], name, b[:12]))
    if len(auto) != vocabulary:
        raise Difference("AutoTokenizer has %d tokens, the config %d" % (len(auto), vocabulary))
    return len(texts)


def train(heddle, scratch, precision, steps, **keys):
    folder = os.path.join(scratch, "out")
    run = {**TRAINING, "max_steps": steps, "output_dir": folder, **keys}
    if precision == "bf16":
        run.update(bf16=True, torch_dtype="bfloat16")
    heddle.run("train", write_json(os.path.join(scratch, "run.json"), run))
    return folder


def compare_family(heddle, source, precision, steps):
    with tempfile.TemporaryDirectory() as scratch:
        path, rows, prompt = rows_of_model(source, scratch)
        longest = max(len(row["input_ids"]) for row in rows)
        folder = train(heddle, scratch, precision, steps, model_name_or_path=source, train_file=path, max_length=longest)
        model = load(folder)
        worst = compare_losses(heddle, folder, model, rows, path, scratch)
        logits = compare_logits(heddle, folder, model, rows[0], scratch)
        same = compare_text(heddle, folder, model, prompt)
    return {"rows": len(rows), "worst": worst, "logits": logits, "tokens": same}


def compare_from_scratch(heddle, precision, steps):
    """From a bare config.json, on the bytes of the README; compared on pieces of CONTRIBUTING.md."""
    with tempfile.TemporaryDirectory() as scratch:
        config = write_json(os.path.join(scratch, "config.json"), FROM_SCRATCH)
        folder = train(heddle, scratch, precision, steps, config_name=config, tokenizer_name="bytes", train_file=os.path.join(ROOT, "README.md"),
                       packing=True, max_length=128)
        model = load(folder)
        with open(os.path.join(ROOT, "CONTRIBUTING.md"), "rb") as f:
            held_out = f.read()
        rows = [{"input_ids": list(held_out[i:i + 129])} for i in range(0, 1024, 128)]
        worst = compare_losses(heddle, folder, model, rows, write_rows(os.path.join(scratch, "rows.jsonl"), rows), scratch)
        logits = compare_logits(heddle, folder, model, rows[0], scratch)
        same = compare_text(heddle, folder, model, "Heddle")
        compare_tokenizer(heddle, folder, FROM_SCRATCH["vocab_size"])
    return {"rows": len(rows), "worst": worst, "logits": logits, "tokens": same}


def default_models():
    data = os.environ.get("HEDDLE_DATA", os.path.join(ROOT, "..", "shared", "data"))
    families = os.path.join(data, "golden", "families")
    found = [os.path.join(families, n) for n in sorted(os.listdir(families))] if os.path.isdir(families) else []
    found = [f for f in found + [os.path.join(data, "models", "stories260K", "hf")] if os.path.exists(os.path.join(f, "model.safetensors"))]
    types = {read_json(os.path.join(f, "config.json"))["model_type"] for f in found}
    goldens = os.path.join(ROOT, "build", "family_goldens")
    names = [n for n, config in family_cases.cases(family_cases.FAMILIES, ["default"]) if config["model_type"] not in types]
    absent = [n for n in names if not os.path.exists(os.path.join(goldens, n, "expected.json"))]
    if absent:
        subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "make_family_goldens.py"), goldens] + absent, check=True)
    return found + [os.path.join(goldens, n) for n in names]


def name_of(folder):
    parts = os.path.normpath(folder).split(os.sep)
    return parts[-2] if parts[-1] == "hf" else parts[-1]


def table(results):
    lines = ["transformers %s, torch %s, tokenizers %s." % (transformers.__version__, torch.__version__, tokenizers.__version__), "",
             "| model | trained in | rows | largest relative difference of a loss | largest difference of a log-probability | greedy tokens that agree | |",
             "|---|---|---|---|---|---|---|"]
    for r in results:
        if "error" in r:
            lines.append("| %s | %s | | | | | **differs**: %s |" % (r["model"], r["precision"], r["error"].replace("|", "\\|")))
        else:
            lines.append("| %s | %s | %d | %.1e | %.1e | %d of %d | same |" % (
                r["model"], r["precision"], r["rows"], r["worst"], r["logits"], r["tokens"], r["tokens"]))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--precision", choices=("fp32", "bf16", "both"), default="both")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--docs", action="store_true", help="write the table into docs/interchange.md")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    heddle = Heddle(args.heddle)
    cases = [(name_of(m), lambda p, m=m: compare_family(heddle, m, p, args.steps)) for m in args.models or default_models()]
    cases.append(("from scratch, bytes", lambda p: compare_from_scratch(heddle, p, 40)))
    results = []
    for precision in ("fp32", "bf16") if args.precision == "both" else (args.precision,):
        for name, case in cases:
            try:
                found = case(precision)
                line = "same: %d rows, largest difference of a loss %.1e (relative), of a log-probability %.1e; %d greedy tokens" % (
                    found["rows"], found["worst"], found["logits"], found["tokens"])
            except Exception as e:  # one model's failure must not hide the others'
                found = {"error": str(e).splitlines()[0] if isinstance(e, Difference) else "%s: %s" % (type(e).__name__, str(e)[:200])}
                line = "DIFFERS: " + found["error"]
            print("%-24s %s  %s" % (name, precision, line), flush=True)
            results.append({"model": name, "precision": precision, **found})
    if args.docs:
        write_between_marks("interchange.md", "compare_transformers", table(results))
    failed = sum("error" in r for r in results)
    print("%d passed, %d failed" % (len(results) - failed, failed))
    return 1 if failed else 0


sys.exit(main())
