#!/usr/bin/env python3
"""LoRA and QLoRA steps against PEFT + transformers (+ bitsandbytes), same start, same rows in the same order, on a real model.

    $(scripts/peer_environment) scripts/compare_peft.py MODEL_FOLDER ROWS.jsonl [--heddle build/release/src/heddle] [--steps 10]

ROWS holds {"input_ids", "labels"}. Each case prints both loss curves' greatest difference, absolute, and that of the gradient norms, relative; a case
fails beyond 3e-5 and 1e-4, what fp32 is away from float64 on such models; with double quantization while loading beyond 2e-4: there bitsandbytes takes a mean of
scales in fp32, whose last bit depends on its threads, and with it a few scales' codes.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = {"lora": {}, "rslora-all-linear": {"use_rslora": True, "target_modules": "all-linear"}, "dora": {"use_dora": True}, "qdora": {"quant": "nf4", "use_dora": True},
         "qlora-single": {"quant": "nf4"}, "qlora-double": {"quant": "nf4", "double": True}, "qlora-fp4": {"quant": "fp4"},
         "qlora-all-linear": {"quant": "nf4", "double": True, "target_modules": "all-linear"},
         # A base that transformers + bitsandbytes saved in four bits: its scales are in the file, and the same on both sides.
         "saved-nf4": {"quant": "nf4", "saved": True}, "saved-nf4-double": {"quant": "nf4", "double": True, "saved": True, "target_modules": "all-linear"},
         "saved-fp4-double": {"quant": "fp4", "double": True, "saved": True}}


def quantization(case):
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=case["quant"], bnb_4bit_use_double_quant=case.get("double", False),
                              bnb_4bit_compute_dtype=torch.float32)


def save_in_four_bits(model_path, case, folder):
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32, quantization_config=quantization(case))
    model.save_pretrained(folder)
    for name in os.listdir(model_path):
        if "token" in name or name in ("vocab.json", "merges.txt"):
            shutil.copy(os.path.join(model_path, name), folder)
    return folder


def peft_steps(model_path, rows, steps, case, start):
    torch.manual_seed(1)
    more = {}
    if "quant" in case and not case.get("saved"):
        more["quantization_config"] = quantization(case)
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32, attn_implementation="eager", **more)
    for module in model.modules():  # else bitsandbytes rounds what it decodes to bf16, whatever the compute type
        if hasattr(getattr(module, "weight", None), "quant_state"):
            module.weight.quant_state.dtype = torch.float32
    config = LoraConfig(r=8, lora_alpha=16, target_modules=case.get("target_modules", ["q_proj", "v_proj"]), task_type="CAUSAL_LM",
                        use_rslora=case.get("use_rslora", False), use_dora=case.get("use_dora", False))
    model = get_peft_model(model, config)
    model.train()  # in evaluation bitsandbytes takes other kernels, in bf16
    model.save_pretrained(start)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.0)
    losses, norms = [], []
    for step in range(steps):
        total, count = 0.0, 0
        for row in rows[2 * step:2 * step + 2]:
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
            logits = model(ids).logits[0, :-1].double()
            total = total + torch.nn.functional.cross_entropy(logits, labels[1:], ignore_index=-100, reduction="sum")
            count += int((labels[1:] != -100).sum())
        loss = total / count
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses, norms


def heddle_steps(program, model_path, rows, steps, case, start, folder):
    with open(os.path.join(folder, "rows.jsonl"), "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    run = {"model_name_or_path": model_path, "adapter_name_or_path": start, "train_file": os.path.join(folder, "rows.jsonl"), "max_length": 512, "packing": False,
           "shuffle": False, "per_device_train_batch_size": 2, "max_steps": steps, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "weight_decay": 0.0,
           "output_dir": os.path.join(folder, "out"), "resume_from_checkpoint": False,
           "load_in_4bit": "quant" in case and not case.get("saved"), "bnb_4bit_quant_type": case.get("quant", "nf4"),
           "bnb_4bit_use_double_quant": case.get("double", False)}
    path = os.path.join(folder, "run.json")
    with open(path, "w") as f:
        json.dump(run, f)
    subprocess.run([program, "train", path], check=True, stderr=subprocess.DEVNULL)
    with open(os.path.join(folder, "out", "metrics.jsonl")) as f:
        metrics = [json.loads(line) for line in f]
    return [m["loss"] for m in metrics], [m["grad_norm"] for m in metrics]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("rows")
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build", "release", "src", "heddle"))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    with open(args.rows) as f:
        rows = [json.loads(line) for line in f][:2 * args.steps]
    rows = [{"input_ids": r["input_ids"], "labels": r["labels"]} for r in rows]
    failed = 0
    for name, case in CASES.items():
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            start = os.path.join(folder, "start")
            base = save_in_four_bits(args.model, case, os.path.join(folder, "base")) if case.get("saved") else args.model
            want = peft_steps(base, rows, args.steps, case, start)
            got = heddle_steps(args.heddle, base, rows, args.steps, case, start, folder)
        loss = max(abs(a - b) for a, b in zip(got[0], want[0]))
        norm = max(abs(a / b - 1) for a, b in zip(got[1], want[1]))
        bounds = (2e-4, 2e-4) if case.get("double") and not case.get("saved") else (3e-5, 1e-4)
        ok = loss < bounds[0] and norm < bounds[1]
        failed += not ok
        print("%-4s %-20s losses %.1e, gradient norms %.1e; %.4f to %.4f in %d steps" % ("ok" if ok else "FAIL", name, loss, norm, got[0][0], got[0][-1], len(got[0])), flush=True)
    print("%d passed, %d failed" % (len([n for n in CASES if args.only in n]) - failed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
