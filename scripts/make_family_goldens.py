#!/usr/bin/env python3
"""Tiny random models of every family and feature (family_cases.py), with what transformers computes on them.

    scripts/make_family_goldens.py OUT [--families a,b] [--rope_types a,b] [NAME ...]

Each folder OUT/NAME gets, the same at each run with the same packages:
  config.json, model.safetensors   as `save_pretrained` of transformers 5 writes them
  config_v4.json                   the same configuration as transformers 4 spells it
  rows.jsonl                       rows of ids, on both sides of the lengths where dynamic rope and longrope change
  expected.json                    see below
  final.safetensors, packed.safetensors   weights after the two trainings

Values come from transformers' own modelling code with eager attention, in float64 throughout: where that code asks for float32
whatever the model's type (norms, rope, softmax), it gets float64. Each row runs alone and from a fresh rope, so that nothing
depends on padding or on the rows before. expected.json holds
  rows               negative log-likelihood and number of targets of each row
  log_probabilities  of all ids for the last place of some rows
  text               greedy ids with transformers' `generate`, beyond the lengths where rope changes; `is_cached` says with which cache
  train, packed      loss, gradient norm and supervised tokens of AdamW's steps: rows by twos, and all in one stream
  float32            how far transformers' own float32 is from its float64 on the rows (relative)
"""
import argparse
import contextlib
import json
import math
import os
import shutil

import peer_python

peer_python.require("torch", "transformers", "safetensors")

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import family_cases

LENGTHS = [40, 9, 16, 17, 24, 25, 2, 33]
PROMPTS, NEW_TOKENS, MARGIN = ["(1+2)*3", "0.5; 7", "4 < 5", "60/12=5", "#1: 8", "9-8-7-6"], 28, 2e-3
# A large epsilon keeps rounding of faint gradients from growing to whole steps of Adam; it changes nothing else.
COMMON_RUN = dict(learning_rate=1e-3, lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.95,
                  adam_epsilon=1e-3, max_grad_norm=1.0, shuffle=False, seed=1)
TRAIN = dict(COMMON_RUN, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=5, packing=False, max_length=40)
PACKED = dict(COMMON_RUN, per_device_train_batch_size=1, gradient_accumulation_steps=1, max_steps=3, packing=True, max_length=sum(LENGTHS))


@contextlib.contextmanager
def in_float64():
    """Within, torch's names for float32 mean float64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept


def new_model(config):
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(**json.loads(json.dumps(config))), attn_implementation="eager")


def randomize(model, seed):
    """Uneven weights: norms not one, biases not zero, logits not flat."""
    g = torch.Generator().manual_seed(seed)
    table = model.get_input_embeddings().weight
    gemma = model.config.model_type.startswith("gemma")
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            if p.dim() == 1:
                p.copy_(p.flatten()[0].round() + 0.3 * noise)  # norms start at one, or at zero in Gemma; biases at zero
            elif p is table or "wpe" in name:
                p.copy_((0.1 if gemma else 0.4) * noise)
            else:
                fan_in = p.shape[0] if model.config.model_type == "gpt2" and "lm_head" not in name else p.shape[1]
                p.copy_(noise / math.sqrt(fan_in))


def fresh_rope(model):
    """Dynamic rope remembers the longest sequence it has seen."""
    base = model.base_model
    if hasattr(base, "rotary_emb"):
        base.rotary_emb = type(base.rotary_emb)(config=model.config)


def logits_of(model, ids):
    fresh_rope(model)
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def nll(model, row):
    """Sum of negative log-likelihoods, and the number of targets."""
    labels = torch.tensor(row.get("labels", row["input_ids"]))[1:]
    kept = labels != -100
    log_p = logits_of(model, row["input_ids"])[:-1].log_softmax(-1)
    return -log_p[kept].gather(1, labels[kept, None]).sum(), int(kept.sum())


def make_rows():
    g = torch.Generator().manual_seed(11)
    rows = []
    for i, length in enumerate(LENGTHS):
        ids = torch.randint(0, family_cases.VOCABULARY, (length,), generator=g).tolist()
        row = {"input_ids": ids}
        if i % 3 == 1:
            row["labels"] = [-100 if k < length // 3 or k % 5 == 4 else t for k, t in enumerate(ids)]
        rows.append(row)
    return rows


def greedy(model, prompt, is_cached):
    """New ids and the smallest lead of a chosen one."""
    fresh_rope(model)
    ids = torch.tensor([list(prompt.encode())])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS, use_cache=is_cached,
                         return_dict_in_generate=True, output_logits=True)
    leads = [float(top[0] - top[1]) for top in (step[0].topk(2).values for step in out.logits)]
    return out.sequences[0, ids.shape[1]:].tolist(), min(leads)


def train(model, rows, run, rows_per_step):
    params = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in params if p.dim() >= 2], "weight_decay": run["weight_decay"]},
                                   {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}],
                                  lr=run["learning_rate"], betas=(run["adam_beta1"], run["adam_beta2"]), eps=run["adam_epsilon"])
    out = {"run": run, "loss": [], "grad_norm": [], "num_supervised_tokens": []}
    for step in range(run["max_steps"]):
        parts = [nll(model, rows[(step * rows_per_step + i) % len(rows)]) for i in range(rows_per_step)]
        count = sum(n for _, n in parts)
        loss = sum(s for s, _ in parts) / count
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, run["max_grad_norm"])
        optimizer.step()
        for key, value in (("loss", loss.item()), ("grad_norm", norm.item()), ("num_supervised_tokens", count)):
            out[key].append(value)
    return out


def save_weights(model, path):
    state = {k: v.detach().clone().to(torch.float32).contiguous() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight")
    save_file(state, path, metadata={"format": "pt"})


def make(name, config, out):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    rows = make_rows()
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    # Only Phi-3's own code makes the cache anew where longrope changes; elsewhere cached keys would keep the short rotation.
    is_cached = kind != "longrope" or config["model_type"] == "phi3"

    model32 = new_model(config).float()
    randomize(model32, seed=sum(map(ord, name)))
    state = {k: v.clone() for k, v in model32.state_dict().items()}
    model32.save_pretrained(folder)

    def model64():
        model = new_model(config).double()
        model.load_state_dict({k: v.double() for k, v in state.items()})
        return model.eval()

    with in_float64():
        model = model64()
        with torch.no_grad():
            sums = [nll(model, row) for row in rows]
            swept = [0] + ([2] if kind in ("dynamic", "longrope") else [])
            log_p = {str(i): logits_of(model, rows[i]["input_ids"])[-2].log_softmax(-1).tolist() for i in swept}
            texts = [(prompt, *greedy(model, prompt, is_cached)) for prompt in PROMPTS]
            clear = [t for t in texts if t[2] > MARGIN]
            if not clear:
                raise SystemExit("%s: no prompt gives a clear text" % name)
            prompt, ids, margin = max(clear, key=lambda t: (len(set(t[1])), t[2]))
        stepped = train(model, rows, TRAIN, 4)
        final = {k: v.clone() for k, v in model.state_dict().items()}
        packed_model = model64()
        packed = train(packed_model, rows, PACKED, len(rows))
    with torch.no_grad():
        sums32 = [nll(model32.eval(), row)[0].item() for row in rows]
    model.load_state_dict(final)
    save_weights(model, os.path.join(folder, "final.safetensors"))
    save_weights(packed_model, os.path.join(folder, "packed.safetensors"))
    with open(os.path.join(folder, "config_v4.json"), "w") as f:
        json.dump({"architectures": model32.config.architectures, **config}, f, indent=2)
    with open(os.path.join(folder, "rows.jsonl"), "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    expected = {
        "made_with": "transformers %s, torch %s" % (transformers.__version__, torch.__version__),
        "num_parameters": sum(p.numel() for p in model32.parameters()),
        "rows": [{"nll": s.item(), "num_targets": n} for s, n in sums],
        "log_probabilities": log_p,
        "text": {"prompt": prompt, "ids": ids, "margin": margin, "is_cached": is_cached},
        "train": stepped, "packed": packed,
        "float32": max(abs(a / s.item() - 1) for a, (s, _) in zip(sums32, sums)),
    }
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(expected, f, indent=1)
    return expected


def make_all(out, families, rope_types, names=()):
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for name, config in family_cases.cases(families, rope_types):
        if not names or name in names:
            e = make(name, config, out)
            print("%-22s %6d parameters, loss %.3f, margin %.3f, transformers' float32 %.0e" % (
                name, e["num_parameters"], e["rows"][0]["nll"] / e["rows"][0]["num_targets"], e["text"]["margin"], e["float32"]), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--families", default=",".join(family_cases.FAMILIES))
    parser.add_argument("--rope_types", default="default,linear,dynamic,yarn,llama3,longrope")
    args = parser.parse_args()
    make_all(args.out, args.families.split(","), args.rope_types.split(","), args.names)
