#!/usr/bin/env python3
"""Parameter groups, frozen weights and a resized vocabulary against torch and transformers, on a tiny model.

    $(scripts/peer_environment) scripts/compare_groups.py [--heddle build/release/src/heddle] [--only NAME]

Both programs make five steps of AdamW (or SGD with momentum) in fp32 from the same weights with the same rows. Compared are losses, gradient norms (relative),
and all weights that come out: each within 1e-6 of the reference in float64, frozen ones byte for byte. New rows of a resized vocabulary are compared with the
mean of the old ones, and transformers' own, which draws them around it, to ten of its standard deviations.
"""
import argparse
import copy
import fnmatch
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LR, DECAY, STEPS, VOCABULARY = 2e-3, 0.1, 5, 64
EPSILON = 1e-4  # with AdamW's own 1e-8 the first steps are signs of gradients, of which some are zero but for rounding
CASES = {
    "plain": {},
    "groups": {"param_groups": [{"params": "model.layers.0", "lr_scale": 0.25}, {"params": ["*norm*", "lm_head"], "learning_rate": 5e-3, "weight_decay": 0.0}]},
    "freeze": {"freeze": ["model.embed_tokens", "model.layers.0", "*norm*"]},
    "train_only": {"train_only": ["lm_head", "model.layers.1.mlp"], "param_groups": [{"params": "lm_head", "lr_scale": 3, "weight_decay": 0.5}]},
    "tied": {"tied": True, "param_groups": [{"params": "lm_head", "lr_scale": 0.5, "weight_decay": 0.02}]},
    "tied-frozen": {"tied": True, "freeze": ["lm_head"]},
    "sgd": {"optim": "sgd", "optim_args": "momentum=0.9", "param_groups": [{"params": "model.layers.1", "lr_scale": 2, "weight_decay": 0.3}]},
    "resize": {"resize_token_embeddings": True},
    "resize-padded": {"resize_token_embeddings": True, "pad_to_multiple_of": 48, "tied": True},
}


def matches(patterns, names):
    """The rule of docs/run-file.md: the whole name, or that of a module above."""
    patterns = [patterns] if isinstance(patterns, str) else patterns
    whole = [".".join(name.split(".")[:n]) for name in names for n in range(1, name.count(".") + 2)]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in whole)


def make_model(case, folder):
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=64, tie_word_embeddings=case.get("tied", False), bos_token_id=None, eos_token_id=None, pad_token_id=None)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.5 if parameter.dim() == 1 else 0.0, 0.1)
    model.save_pretrained(folder)
    added = 20 if case.get("resize_token_embeddings") else 0
    vocabulary = {chr(0x100 + i): i for i in range(VOCABULARY)}
    tokens = [{"id": VOCABULARY + i, "content": f"<new{i}>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in range(added)]
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                   "decoder": None, "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                                              "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []}}, f)
    return model.double(), VOCABULARY + added


def resize(model, case, ids):
    """As transformers, but for its noise; its own rows are looked at first."""
    drawn = copy.deepcopy(model)
    drawn.resize_token_embeddings(ids, pad_to_multiple_of=case.get("pad_to_multiple_of"), mean_resizing=True)
    model.resize_token_embeddings(ids, pad_to_multiple_of=case.get("pad_to_multiple_of"), mean_resizing=False)
    for table, other in [(model.get_input_embeddings(), drawn.get_input_embeddings()), (model.get_output_embeddings(), drawn.get_output_embeddings())]:
        with torch.no_grad():
            table.weight[VOCABULARY:] = table.weight[:VOCABULARY].mean(0)
            spread = (table.weight[:VOCABULARY].std(0) * 1e-9 ** 0.5).max()
            assert float((table.weight - other.weight).abs().max()) < 10 * float(spread), "transformers draws new rows elsewhere"


def reference(model, case, rows):
    groups, tied = [], case.get("tied", False)
    for name, parameter in model.named_parameters():
        names = [name, "lm_head.weight"] if tied and name == "model.embed_tokens.weight" else [name]
        frozen = matches(case.get("freeze", []), names) or ("train_only" in case and not matches(case["train_only"], names))
        parameter.requires_grad_(not frozen)
        if frozen:
            continue
        group = next((g for g in case.get("param_groups", []) if matches(g["params"], names)), {})
        lr = group.get("learning_rate", LR * group.get("lr_scale", 1))
        groups.append({"params": [parameter], "lr": lr, "weight_decay": group.get("weight_decay", DECAY) if parameter.dim() >= 2 else 0.0})
    trained = [g["params"][0] for g in groups]
    is_sgd = case.get("optim") == "sgd"
    optimizer = torch.optim.SGD([dict(g, weight_decay=0.0) for g in groups], lr=LR, momentum=0.9) if is_sgd else torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=EPSILON)
    losses, norms = [], []
    for step in range(STEPS):
        ids = torch.tensor(rows[2 * step:2 * step + 2])
        logits = model(ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        if is_sgd:  # decoupled
            with torch.no_grad():
                for group in groups:
                    group["params"][0].mul_(1 - group["lr"] * group["weight_decay"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses, norms, {name: parameter.detach() for name, parameter in model.named_parameters()}


def heddle(program, case, rows, folder):
    with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"input_ids": row}) + "\n" for row in rows)
    run = {"model_name_or_path": os.path.join(folder, "model"), "train_file": os.path.join(folder, "rows.jsonl"), "max_length": 64, "packing": False, "shuffle": False,
           "per_device_train_batch_size": 2, "max_steps": STEPS, "learning_rate": LR, "lr_scheduler_type": "constant", "weight_decay": DECAY, "adam_epsilon": EPSILON,
           "output_dir": os.path.join(folder, "out"), "resume_from_checkpoint": False, **{k: v for k, v in case.items() if k != "tied"}}
    path = os.path.join(folder, "run.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(run, f)
    subprocess.run([program, "train", path], check=True, stderr=subprocess.DEVNULL)
    with open(os.path.join(folder, "out", "metrics.jsonl"), encoding="utf-8") as f:
        metrics = [json.loads(line) for line in f]
    return [m["loss"] for m in metrics], [m["grad_norm"] for m in metrics], load_file(os.path.join(folder, "out", "model.safetensors"))


def compare(program, case):
    with tempfile.TemporaryDirectory() as folder:
        model, ids = make_model(case, os.path.join(folder, "model"))
        before = load_file(os.path.join(folder, "model", "model.safetensors"))
        if case.get("resize_token_embeddings"):
            resize(model, case, ids)
        generator = torch.Generator().manual_seed(7)
        rows = torch.randint(0, ids, (2 * STEPS, 24), generator=generator).tolist()
        want = reference(model, case, rows)
        got = heddle(program, case, rows, folder)
        with open(os.path.join(folder, "out", "config.json"), encoding="utf-8") as f:
            assert json.load(f)["vocab_size"] == want[2]["model.embed_tokens.weight"].shape[0]
    assert set(got[2]) == set(want[2]), "other tensors"
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad or torch.equal(got[2][name], before[name]), name + " is frozen and changed"
    return (max(abs(a - b) for a, b in zip(got[0], want[0])), max(abs(a / b - 1) for a, b in zip(got[1], want[1])),
            max(float((got[2][name].double() - want[2][name]).abs().max()) for name in want[2]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "release", "src", "heddle"))
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    failed = 0
    for name, case in CASES.items():
        if arguments.only not in name:
            continue
        differences = compare(arguments.heddle, case)
        ok = max(differences) < 1e-6
        failed += not ok
        print("%-4s %-14s losses %.1e, gradient norms %.1e, weights %.1e" % ("ok" if ok else "FAIL", name, *differences), flush=True)
    print("%d failed" % failed)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
