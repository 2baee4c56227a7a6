#!/usr/bin/env python3
"""Plans published training runs and prints their measured memory beside the plan's: memory of one device, at its peak.

    scripts/compare_published_memory.py [--heddle PROGRAM] [--data TABLE] [--reasons] [--docs] [ID ...]

TABLE is a memory.tsv, or a folder with it or with published/memory.tsv; default: $HEDDLE_DATA, else ../shared/data beside the
repository. A row is a run of some other program: model, layout, lengths and what it measured. Each row whose layout Heddle has
becomes a config.json and `heddle plan --json` of it; any other is counted under its reason, and --reasons lists them. Rows marked
RECALLED, OFF or BELOW (what is impossible) do not count. Where a source says GB and not which, 1e9 bytes are taken, the smaller.
Errors are a model that does not come out with the row's number of parameters (within 2%), and a row where ours is greater for no
known difference. --docs writes the summary of docs/memory.md. Closes with "N compared, M at most theirs, K greater, J not compared".
"""
import argparse
import collections
import csv
import os
import re
import sys
import tempfile

from heddle_program import DEFAULT_PROGRAM, ROOT, Difference, Heddle, write_between_marks, write_json

GIB = 2 ** 30
UNITS = {"GiB": GIB, "MiB": 2 ** 20, "MB": 1e6, "GB": 1e9, "GB(rounded)": 1e9, "GB(1e9)": 1e9}

# Families by the model's name: what its block is here, and what its config.json says beside its sizes. Qwen 1 and ChatGLM3 have the
# block of qwen2 (biases on q, k, v), InternLM, Yi and Baichuan2-7B that of llama.
FAMILIES = [
    (r"InternLM-7B", "llama", {"attention_bias": True}),
    (r"Llama-|LLaMA-|TinyLlama|Yi-|Kempner-|nano-|Baichuan2-7B|InternLM-20B", "llama", {}),
    (r"Mistral-|openbuddy-zephyr", "mistral", {"sliding_window": None}),
    (r"Qwen3-\d", "qwen3", {"attention_bias": False}),
    (r"Qwen2\.5-|Qwen-|chatglm3", "qwen2", {"use_sliding_window": False}),
    (r"gemma-2-", "gemma2", {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096}),
    (r"gemma-", "gemma", {"head_dim": 256}),
    (r"Phi-3-", "phi3", {"sliding_window": None}),
    (r"GPT", "gpt2", {}),
]

# Modules of an adapter, by the words of the LoRA column: each source's default, or the most where it does not say ("see repo yaml").
MODULES = [
    ("attention qkv", ["q_proj", "k_proj", "v_proj"]),
    ("qv", ["q_proj", "v_proj"]),
    ("q,v", ["q_proj", "v_proj"]),
    ("-target-mlp", ["gate_proj", "up_proj", "down_proj"]),
    ("rank", ["q_proj", "v_proj"]),  # PEFT's benchmark: PEFT's default for Llama
    ("all", "all-linear"),
    ("script default", "all-linear"),
    ("see repo yaml", "all-linear"),
]


class NotCompared(Exception):
    """Why a row has no counterpart."""


def whole(row, column):
    if not row[column].isdigit():
        raise NotCompared("%s not stated" % {"seq": "length", "micro_batch": "micro-batch"}.get(column, column))
    return int(row[column])


def config_of(row):
    family = next(((name, extra) for pattern, name, extra in FAMILIES if re.match(pattern, row["model"])), None)
    if family is None or re.match(r"GPT-\d+B", row["model"]):
        raise NotCompared("a model family that Heddle has not")
    name, extra = family
    if not row["hidden"]:
        raise NotCompared("sizes of the model not stated")
    hidden, length = whole(row, "hidden"), whole_length(row)
    tied = row["tied"] == "1"
    if name == "gpt2":
        return {"model_type": name, "n_embd": hidden, "n_layer": whole(row, "layers"), "n_head": whole(row, "heads"),
                "n_inner": whole(row, "ffn"), "n_positions": max(length, 1024), "vocab_size": whole(row, "vocab"),
                "tie_word_embeddings": tied}
    return {"model_type": name, "hidden_size": hidden, "intermediate_size": whole(row, "ffn"), "num_hidden_layers": whole(row, "layers"),
            "num_attention_heads": whole(row, "heads"), "num_key_value_heads": whole(row, "kv_heads"), "vocab_size": whole(row, "vocab"),
            "max_position_embeddings": 131072, "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
            **({"head_dim": int(row["head_dim"])} if row["head_dim"] else {}), **extra}


def whole_length(row):
    if "unpacked" in row["note"]:
        raise NotCompared("length not stated")
    stated = re.search(r"seq not restated in table \(repo default (\d+)\)", row["note"])
    return int(stated.group(1)) if stated and not row["seq"] else whole(row, "seq")


def refuse_parallel(row):
    degrees = [name for column, name in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "expert"))
               if row[column] not in ("", "1")]
    if row["moe"]:
        raise NotCompared("mixture of experts")
    if degrees:
        raise NotCompared("tensor, pipeline, context or expert parallel")


def precision_of(row):
    if row["dtype"] not in ("bf16", "fp16", "fp32"):
        raise NotCompared("products in fp8, fp4 or int8")
    return {} if row["dtype"] == "fp32" else {row["dtype"]: True}


def recompute_of(row):
    text = row["recompute"]
    for name in ("none", "full"):
        if text.startswith(name):
            return {"recompute": name}
    if text == "selective(op)":
        return {"recompute": "selective"}
    if text == "selective layer(every 2nd)":
        return {"recompute": "full", "recompute_every": 2}
    raise NotCompared("recomputation not stated" if not text else "recomputation of chosen blocks or modules only")


def stage_of(row):
    text = row["shard"]
    if text.startswith(("fsdp/ddp", "none", "ddp")) and text != "ddp+dist-opt":
        return 0  # where it is not stated: the most
    if text.startswith("fsdp"):
        return 3
    stage = re.match(r"zero(\d)", text)
    return int(stage.group(1)) if stage else 1


def offload_of(row):
    text = row["offload"]
    keys = {}
    if text in ("", "none"):
        return keys
    if "optimizer" in text or text in ("zero3 cpu", "cpu"):
        keys["offload_optimizer"] = "cpu"
    if "param" in text or text in ("zero3 cpu", "cpu"):
        keys["offload_param"] = "cpu"
    if "activations" in text:
        keys["offload_activations"] = "cpu"
    return keys


def adapter_of(text):
    if text in ("lora", "qlora"):
        raise NotCompared("rank of the adapter not stated")
    form = re.fullmatch(r"(?:q?lora )?r(\d+) .*|lora rank(\d+)(?:-(?:rslora|dora|target-mlp))?|q?lora r(\d+)", text)
    if form is None:
        raise NotCompared("an adapter that Heddle has not")
    modules = next((modules for words, modules in MODULES if words in text), None)
    if modules is None:
        raise NotCompared("modules of the adapter not stated")
    keys = {"r": int(next(filter(None, form.groups()))), "target_modules": modules}
    if "-dora" in text:
        keys["use_dora"] = True
    if "(emb)" in text:
        keys["modules_to_save"] = ["embed_tokens", "lm_head"]
    return keys


def training_of(row):
    if row["lora"]:
        keys = {"lora." + key: value for key, value in adapter_of(row["lora"]).items()}
        if row["optimizer"] != "adamw":
            raise NotCompared("an optimizer that Heddle has not")
        if "nf4" in row["weights"]:
            keys.update(load_in_4bit=True, bnb_4bit_use_double_quant=row["weights"] == "nf4-dq")
        elif row["weights"] not in ("bf16", "fp16"):
            raise NotCompared("a base in GPTQ's types")
        return keys
    if not re.fullmatch(r"adamw?( fp32.*| fused.*| bf16 states| \(cpu\))?", row["optimizer"]):
        raise NotCompared("an optimizer that Heddle has not" if row["optimizer"] else "optimizer not stated")
    if re.search(r"optimizer in backward|cumulative: \+activation offload", row["note"]):
        raise NotCompared("an optimizer step inside the backward")
    return {}


def is_bf16_alone(row):
    """All weights, gradients and states in bf16: 8 bytes a parameter. Heddle keeps fp32 gradients, master weights and moments."""
    return not row["lora"] and row["weights"] == "bf16" and row["masters"] == "none"


def published_bytes(row):
    if not re.fullmatch(r"[\d.]+", row["value"]) or row["status"] not in ("", "fit"):
        raise NotCompared("no peak, as the run did not fit")
    if row["what"].startswith("class:") or not row["what"] or "largest" in row["what"]:
        raise NotCompared("a class of memory or a formula, not a peak")
    unit = UNITS.get(row["unit"]) or (GIB if "=GiB" in row["unit"] else None)
    if unit is None:
        raise NotCompared("a figure that is no memory")
    devices = whole(row, "gpus") if "summed" in row["what"] else 1
    return float(row["value"]) * unit / devices


def plan_keys(row):
    devices = whole(row, "gpus") if row["gpus"] else 1
    keys = {**precision_of(row), **recompute_of(row), **training_of(row), **offload_of(row),
            "max_length": whole_length(row), "per_device_train_batch_size": whole(row, "micro_batch"),
            "gradient_accumulation_steps": whole(row, "grad_accum") if row["grad_accum"] else 1, "ranks": devices}
    if devices > 1:
        keys["zero_stage"] = stage_of(row)
    return keys


def arguments_of(keys):
    def text(value):
        if isinstance(value, bool):
            return "true" if value else "false"
        return "[%s]" % ", ".join(value) if isinstance(value, list) else str(value)
    return [part for key, value in keys.items() for part in ("--" + key, text(value))]


# `why` and `without` only where ours is greater: the reason, and our bytes without that difference.
Compared = collections.namedtuple("Compared", "row keys theirs ours why without")


def explain(heddle, config, row, keys, plan):
    """Why a plan is greater than what was measured, and the plan without that difference: by what is alive at its peak."""
    at_peak, ours = plan["ranks"][0]["tiers"]["device"]["at_peak"], device_peak(plan)
    wider = at_peak["master_weights"] + (at_peak["gradients"] + at_peak["optimizer_states"]) // 2  # than bf16 alone
    if is_bf16_alone(row) and "offload_optimizer" in keys:
        # Weights of 2 bytes and gradients of 4 bytes a parameter, of the same blocks: 2 of 6 bytes are what bf16 gradients save.
        return "gradients of two blocks are on their way to their owners in fp32, theirs in bf16", ours - at_peak["communication"] // 3
    if is_bf16_alone(row):
        return "all is kept in bf16, 8 bytes a parameter; ours has fp32 gradients, master weights and moments, 18", ours - wider
    if "lora.modules_to_save" in keys:
        return ("embeddings and head are trained in bf16 alone, 8 bytes a parameter; ours with fp32 gradients, master weights, moments: 18",
                ours - wider * saved_parameters(row, keys) // plan["num_trainable_parameters"])
    if keys["recompute"] == "selective":
        full = heddle.json("plan", config, *arguments_of({**keys, "recompute": "full"}))
        return ("their `selective` keeps every second product of a block, ours every product; `recompute: full` keeps less than either",
                device_peak(full))
    if row["shard"].startswith("zero") and not row["lora"]:
        return "gradients are bf16; ours are gathered in fp32", ours - at_peak["gradients"] // 2
    return None, None


def saved_parameters(row, keys):
    """Embedding and head where they are trained beside an adapter."""
    return 2 * int(row["vocab"]) * int(row["hidden"]) if "lora.modules_to_save" in keys else 0


def device_peak(plan):
    return plan["ranks"][0]["tiers"]["device"]["peak"]


def compare(heddle, row, scratch):
    theirs = published_bytes(row)
    refuse_parallel(row)
    keys = plan_keys(row)
    config = write_json(os.path.join(scratch, "config.json"), config_of(row))
    plan = heddle.json("plan", config, *arguments_of(keys))
    adapters = plan["num_trainable_parameters"] - saved_parameters(row, keys) if row["lora"] else 0
    size = (plan["num_parameters"] - adapters) / 1e9
    if row["params_b"] and abs(size / float(row["params_b"]) - 1) > 0.02:
        raise Difference("%s comes out with %.3fB parameters; the row says %s" % (row["model"], size, row["params_b"]))
    ours = device_peak(plan)
    why, without = explain(heddle, config, row, keys, plan) if ours > theirs else (None, None)
    return Compared(row, keys, theirs, ours, why, without)


def layout_text(c):
    keys, parts = c.keys, []
    lora = keys.get("lora.r")
    method = "QLoRA" if keys.get("load_in_4bit") else "DoRA" if keys.get("lora.use_dora") else "LoRA"
    parts.append("%s r%d" % (method, lora) if lora else "all weights")
    if "lora.modules_to_save" in keys:
        parts.append("and embeddings")
    parts.append("bf16 alone" if is_bf16_alone(c.row) else "bf16" if "bf16" in keys else "fp16" if "fp16" in keys else "fp32")
    if keys["ranks"] > 1:
        parts.append("%d ranks, stage %d" % (keys["ranks"], keys["zero_stage"]))
    if keys["recompute"] != "none":
        parts.append("recompute %s%s" % (keys["recompute"], " every 2nd block" if "recompute_every" in keys else ""))
    parts += ["%s on host" % key[len("offload_"):] for key in keys if key.startswith("offload_")]
    return ", ".join(parts)


def kind_of(row):
    """What was measured, in a word: memory asked for, memory that the allocator holds, or the process's."""
    for word in ("reserved", "allocated", "active", "nvidia-smi", "process"):
        if word in row["what"]:
            return word
    return "not stated"


def batch_text(c):
    return "%d x %d" % (c.keys["per_device_train_batch_size"], c.keys["max_length"])


def span(values, form):
    texts = [form % value for value in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else " - ".join(texts)


def every_row(compared):
    lines = ["| row | source | model | layout | batch x length | theirs, GiB | measured as | ours, GiB | ours / theirs |",
             "|---|---|---|---|---|---|---|---|---|"]
    for c in compared:
        lines.append("| %s | %s | %s | %s | %s | %.2f | %s | %.2f | %.2f |" % (
            c.row["id"], c.row["src"], c.row["model"], layout_text(c), batch_text(c), c.theirs / GIB, kind_of(c.row), c.ours / GIB,
            c.ours / c.theirs))
    return "\n".join(lines)


def summary(compared):
    """A line for the rows of one source that differ in batch and length alone."""
    groups = collections.OrderedDict()
    for c in compared:
        groups.setdefault((c.row["src"], c.row["model"], layout_text(c), kind_of(c.row)), []).append(c)
    lines = ["| source | model | layout | batch x length | rows | theirs, GiB | measured as | ours, GiB | ours / theirs |",
             "|---|---|---|---|---|---|---|---|---|"]
    for (source, model, layout, kind), members in groups.items():
        members.sort(key=lambda c: c.keys["per_device_train_batch_size"] * c.keys["max_length"])
        batches = list(dict.fromkeys(batch_text(c) for c in members))
        lines.append("| %s | %s | %s | %s | %s | %s | %s | %s | %s |" % (
            source, model, layout, " ... ".join(dict.fromkeys([batches[0], batches[-1]])), span([c.row["id"] for c in members], "%s"),
            span([c.theirs / GIB for c in members], "%.1f"), kind, span([c.ours / GIB for c in members], "%.1f"),
            span([c.ours / c.theirs for c in members], "%.2f")))
    return "\n".join(lines)


def greater_rows(compared):
    """A line for the rows of one layout that are greater for one reason."""
    groups = collections.OrderedDict()
    for c in compared:
        if c.ours > c.theirs:
            groups.setdefault((c.row["src"], c.row["model"], layout_text(c), c.why), []).append(c)
    lines = ["| rows | run | theirs, GiB | ours, GiB | why | ours without that, GiB |", "|---|---|---|---|---|---|"]
    for (source, model, layout, why), members in groups.items():
        without = [c.without / GIB for c in members if c.without is not None]
        lines.append("| %s | %s %s, %s | %s | %s | %s | %s |" % (
            ", ".join(c.row["id"] for c in members), source, model, layout, span([c.theirs / GIB for c in members], "%.1f"),
            span([c.ours / GIB for c in members], "%.1f"), why or "not explained", span(without, "%.1f") if without else ""))
    return "\n".join(lines)


def table_path(given):
    path = given or os.environ.get("HEDDLE_DATA") or os.path.join(ROOT, "..", "shared", "data")
    for part in ("published", "memory.tsv"):
        if os.path.exists(os.path.join(path, part)):
            path = os.path.join(path, part)
    if not os.path.isfile(path):
        raise SystemExit("%s has no memory.tsv; name the table with --data" % path)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--data")
    parser.add_argument("--reasons", action="store_true")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("ids", nargs="*", metavar="ID")
    args = parser.parse_args()
    with open(table_path(args.data), newline="") as f:
        rows = [row for row in csv.DictReader(f, delimiter="\t") if not args.ids or row["id"] in args.ids]
    counted = [row for row in rows if "RECALLED" not in row["note"] and not re.match("OFF|.*BELOW", row["check"])]
    heddle = Heddle(args.heddle)
    compared, reasons, wrong = [], collections.defaultdict(list), []
    with tempfile.TemporaryDirectory() as scratch:
        for row in counted:
            try:
                compared.append(compare(heddle, row, scratch))
            except NotCompared as e:
                reasons[str(e)].append(row["id"])
            except ValueError:
                reasons["a figure that is no number"].append(row["id"])
            except Difference as e:
                wrong.append("%s: %s" % (row["id"], e))
    greater = [c for c in compared if c.ours > c.theirs]
    not_compared = sum(map(len, reasons.values()))
    ratios = sorted(c.ours / c.theirs for c in compared)
    counts = "%d compared, %d at most theirs, %d greater, %d not compared" % (
        len(compared), len(compared) - len(greater), len(greater), not_compared)
    if ratios:
        counts += "; ours / theirs: median %.2f, %.2f to %.2f" % (ratios[len(ratios) // 2], ratios[0], ratios[-1])
    causes = "\n".join(["| not compared | rows |", "|---|---|"]
                       + ["| %s | %d |" % (reason, len(ids)) for reason, ids in sorted(reasons.items(), key=lambda item: -len(item[1]))])
    print("\n\n".join([every_row(compared), greater_rows(compared), causes]))
    if args.reasons:
        for reason, ids in reasons.items():
            print("%s: %s" % (reason, " ".join(ids)))
    wrong += ["%s: ours is greater, and no known difference explains it" % c.row["id"] for c in greater if c.why is None]
    for line in wrong:
        print("wrong: " + line, file=sys.stderr)
    if args.docs:
        write_between_marks("memory.md", "scripts/compare_published_memory.py",
                            "\n\n".join([counts + ".", summary(compared), "Where ours is greater:", greater_rows(compared), causes]))
    print("\n%d rows, of which %d do not count\n%s" % (len(rows), len(rows) - len(counted), counts))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
