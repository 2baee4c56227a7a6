#!/usr/bin/env python3
"""Tables of docs/memory.md that `heddle plan` alone makes: what takes memory in training, beside the formulas of the field.

    scripts/plan_tables.py [--heddle PROGRAM] [--docs]

The models are those of the literature: Llama-3.1-8B, and a GPT of 7.50B parameters as in figure 1 of the ZeRO paper (Rajbhandari et
al. 2020, arXiv:1910.02054). Activations stand beside the formulas of Korthikanti et al. 2022 (arXiv:2205.05198). Every figure of
Heddle's is one of `heddle plan CONFIG ... --json`. What must hold exactly is checked: bytes of model states by stage, to a part in a
thousand (small weights stay whole). --docs writes the tables into docs/memory.md."""
import argparse
import os
import sys
import tempfile

from heddle_program import DEFAULT_PROGRAM, Heddle, write_between_marks, write_json

GIB, GB = 2 ** 30, 1e9
LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
         "tie_word_embeddings": False, "bos_token_id": 128000, "eos_token_id": 128001}
GPT = {"model_type": "gpt2", "n_embd": 4096, "n_layer": 36, "n_head": 32, "n_positions": 1024, "vocab_size": 60000}
LONG_GPT = {**GPT, "n_positions": 32768}
STATES = ("parameters", "master_weights", "gradients", "optimizer_states")
RANKS = 64
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)


class Planner:
    def __init__(self, heddle, folder):
        self.heddle = heddle
        models = {"llama": LLAMA, "gpt": GPT, "long_gpt": LONG_GPT}
        self.paths = {name: write_json(os.path.join(folder, name + ".json"), config) for name, config in models.items()}

    def plan(self, model, **keys):
        """`heddle plan` with keys of the run file; lora__r is lora.r."""
        arguments = []
        for key, value in keys.items():
            arguments += ["--" + key.replace("__", "."), "true" if value is True else value]
        return self.heddle.json("plan", self.paths[model], *arguments)

    def device(self, model, **keys):
        return self.plan(model, **keys)["ranks"][0]["tiers"]["device"]


def table(head, rows):
    def line(cells):
        return "| " + " | ".join(cells) + " |"
    return "\n".join([line(head), "|" + "---|" * len(head)] + [line(row) for row in rows])


def in_gb(values):
    return ["%.1f" % (value / GB) for value in values]


def in_gib(values):
    return ["%.1f" % (value / GIB) for value in values]


def require(what, got, want):
    if abs(got / want - 1) > 1e-3:
        raise SystemExit("%s: %.6g, the formula says %.6g" % (what, got, want))


def states(device):
    return {name: device["classes"][name] for name in STATES}


def bill(planner):
    """Bytes of the model's states, in the forms that people count."""
    count = planner.plan("llama", max_length=128)["num_parameters"]
    fields = [b * count for b in (2, 4, 2, 8)]
    rows = []
    for name, keys, per in (("fp32", {}, (4, 0, 4, 8)),
                            ("bf16, fp32 gradients and master weights (`bf16: true`)", {"bf16": True}, (2, 4, 4, 8)),
                            ("the same, moments in 8 bits (`optim: adamw_8bit`)", {"bf16": True, "optim": "adamw_8bit"}, ())):
        got = states(planner.device("llama", max_length=128, per_device_train_batch_size=1, gradient_accumulation_steps=2, **keys))
        for (part, held), wanted in zip(got.items(), per):
            if wanted:
                require("%s of %s" % (part, name), held, wanted * count)
        rows.append([name] + in_gb(got.values()) + ["**%.1f**" % (sum(got.values()) / GB), "%.2f" % (sum(got.values()) / count)])
    rows.insert(1, ["bf16, as the field counts it: bf16 gradients"] + in_gb(fields) + ["**%.1f**" % (sum(fields) / GB), "16.00"])
    return table(["Llama-3.1-8B (%s parameters), GB" % format(count, ","), "weights", "master weights", "gradients", "Adam's moments",
                  "sum", "bytes a parameter"], rows)


def zero(planner):
    """The ZeRO paper's figure 1."""
    published = (120, 31.4, 16.6, 1.9)
    n = RANKS
    formulas = (16, 4 + 12 / n, 2 + 14 / n, 16 / n)  # bytes a parameter
    formulas_here = (18, 6 + 12 / n, 2 + 16 / n, 18 / n)
    rows = []
    for stage, (paper, formula, ours) in enumerate(zip(published, formulas, formulas_here)):
        plan = planner.plan("gpt", bf16=True, max_length=128, per_device_train_batch_size=1, gradient_accumulation_steps=2, ranks=n,
                            zero_stage=stage)
        count = plan["num_parameters"]
        device = plan["ranks"][0]["tiers"]["device"]
        held = sum(states(device).values())
        require("states at stage %d" % stage, held, ours * count)
        if abs(formula * count / GB - paper) > 0.05:
            raise SystemExit("stage %d: %.2f GB of 16 bytes a parameter, the paper says %s" % (stage, formula * count / GB, paper))
        shared = ("nothing", "optimizer states", "and gradients", "and weights")[stage]
        rows.append([str(stage), shared, "%.1f" % (formula * count / GB), str(paper), "%.1f" % (held / GB), "%.2f" % (held / count),
                     "%.1f" % (device["classes"]["communication"] / GB)])
    return table(["`zero_stage`", "shared by %d ranks" % n, "16 bytes a parameter, GB", "the paper's figure 1, GB", "`heddle plan`, GB",
                  "bytes a parameter", "on their way between ranks, GB"], rows)


def activations_by_length(planner):
    """A GPT in bf16: what a block keeps for its backward, in Korthikanti's bytes and in Heddle's."""
    h, a, layers = GPT["n_embd"], GPT["n_head"], GPT["n_layer"]
    rows = []
    for s in LENGTHS:
        ours = [activation_bytes(planner, "long_gpt", s, mode) for mode in ("none", "selective", "full")]
        for kept, bytes_ in zip((20, 18, 2), ours):  # sbh, as the page explains; a block's backward comes on top
            if not kept * layers * s * h <= bytes_ <= (kept * layers + 40) * s * h:
                raise SystemExit("%d tokens: %d bytes of activations, %d sbh expected" % (s, bytes_, kept))
        formulas = [layers * s * h * kept for kept in (34 + 5 * a * s / h, 34, 2)]
        rows.append([format(s, ",")] + in_gib(formulas + ours))
    return table(["tokens", "formula: all, with scores", "formula: without scores", "formula: inputs of blocks", "`recompute: none`",
                  "`selective`", "`full`"], rows)


def activation_bytes(planner, model, length, mode):
    return planner.device(model, bf16=True, max_length=length, per_device_train_batch_size=1, recompute=mode)["classes"]["activations"]


def recompute_modes(planner):
    """Llama-3.1-8B, one row: bytes and what they cost in FLOPs."""
    rows = []
    for s in (2048, 8192, 32768, 131072):
        long_row = {"bf16": True, "max_length": s, "per_device_train_batch_size": 1, "hardware": "B200"}
        plans = {(mode, tiled): planner.plan("llama", recompute=mode, **long_row, **({"tiled_mlp": True} if tiled else {}))
                 for mode, tiled in (("none", False), ("selective", False), ("full", False), ("none", True), ("full", True))}
        scores = LLAMA["num_hidden_layers"] * LLAMA["num_attention_heads"] * s * s * 2  # one bf16 matrix of scores in each head
        kept = [plan["ranks"][0]["tiers"]["device"]["classes"]["activations"] for plan in plans.values()]
        flops = {mode: plan["fit"]["step_flops"] for mode, plan in plans.items()}
        rows.append([format(s, ",")] + in_gib([scores] + kept)
                    + ["+%.0f%%" % (100 * (flops[plan] / flops["none", False] - 1)) for plan in plans if plan != ("none", False)])
    return table(["tokens", "scores that Heddle never holds", "`none`", "`selective`", "`full`", "`none`, tiled", "`full`, tiled", "FLOPs, `selective`",
                  "FLOPs, `full`", "FLOPs, `none`, tiled", "FLOPs, `full`, tiled"], rows)


BASE = {"bf16": True, "max_length": 4096, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
ADAPTER = {"lora__r": 16, "lora__target_modules": "all-linear"}
OFF_DEVICE = {"recompute": "full", "offload_optimizer": "cpu", "offload_param": "cpu"}
IN_FOUR_BITS = {**ADAPTER, "recompute": "full", "load_in_4bit": True}
KEYS = [
    ("the run as it is", {}),
    ("`--recompute selective`", {"recompute": "selective"}),
    ("`--recompute full`", {"recompute": "full"}),
    ("`--gradient_accumulation_steps 1`", {"gradient_accumulation_steps": 1}),
    ("`--per_device_train_batch_size 4`", {"per_device_train_batch_size": 4}),
    ("`--optim adamw_8bit`", {"optim": "adamw_8bit"}),
    ("`--optim lion`", {"optim": "lion"}),
    ("`--optim adafactor`", {"optim": "adafactor"}),
    ("`--offload_activations cpu`", {"offload_activations": "cpu"}),
    ("`--offload_optimizer cpu`", {"offload_optimizer": "cpu"}),
    ("`--offload_param cpu`", {"offload_param": "cpu"}),
    ("`--recompute full --offload_optimizer cpu --offload_param cpu`", OFF_DEVICE),
    ("the same and `--offload_activations cpu`", {**OFF_DEVICE, "offload_activations": "cpu"}),
    ("`--ranks 8 --zero_stage 1`", {"ranks": 8, "zero_stage": 1}),
    ("`--ranks 8 --zero_stage 2`", {"ranks": 8, "zero_stage": 2}),
    ("`--ranks 8 --zero_stage 3`", {"ranks": 8, "zero_stage": 3}),
    ("`--ranks 8 --zero_stage 3 --recompute full`", {"ranks": 8, "zero_stage": 3, "recompute": "full"}),
    ("`--lora.r 16 --lora.target_modules all-linear`", ADAPTER),
    ("the same and `--recompute full`", {**ADAPTER, "recompute": "full"}),
    ("the same and `--load_in_4bit true`", IN_FOUR_BITS),
    ("the same and `--bnb_4bit_use_double_quant true`", {**IN_FOUR_BITS, "bnb_4bit_use_double_quant": True}),
]


def keys_table(planner):
    rows, first = [], None
    for name, keys in KEYS:
        tiers = planner.plan("llama", **{**BASE, **keys})["ranks"][0]["tiers"]
        device = tiers["device"]
        first = first or device["peak"]
        at = device["at_peak"]
        rest = device["peak"] - sum(at[c] for c in STATES) - at["activations"]
        parts = in_gib([at["parameters"] + at["master_weights"], at["gradients"], at["optimizer_states"], at["activations"], rest])
        host = tiers.get("host", {}).get("peak", 0)
        rows.append([name, "**%.1f**" % (device["peak"] / GIB), "%+.1f" % ((device["peak"] - first) / GIB) if keys else "", *parts,
                     "%.1f" % (host / GIB) if host else ""])
    return table(["key", "peak, GiB", "difference", "weights and masters", "gradients", "optimizer", "activations", "the rest", "on host"], rows)


PARTS = (("bill", bill), ("keys", keys_table), ("zero", zero), ("activations", activations_by_length), ("recompute", recompute_modes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(Heddle(args.heddle), folder)
        for name, make in PARTS:
            text = make(planner)
            print(text + "\n")
            if args.docs:
                write_between_marks("memory.md", "scripts/plan_tables.py " + name, text)


if __name__ == "__main__":
    sys.exit(main())
