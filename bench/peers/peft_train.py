"""LoRA or QLoRA steps by PEFT and transformers on this machine's CPU: one JSON object a step on standard output, for bench/adapters.py."""
import argparse
import json
import resource
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("rows", help="JSONL of input_ids")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--nf4", action="store_true", help="base in NF4 with double quantization, compute in bf16")
    parser.add_argument("--bf16", action="store_true", help="base and compute in bf16")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    more = {"dtype": torch.bfloat16 if args.bf16 or args.nf4 else torch.float32}
    if args.nf4:
        more["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                                         bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(args.model, **more)
    config = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.0)
    with open(args.rows) as f:
        rows = [json.loads(line)["input_ids"] for line in f]
    for step in range(args.steps):
        start = time.perf_counter()
        ids = torch.tensor(rows[step * args.batch:(step + 1) * args.batch])
        loss = model(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"step": step + 1, "loss": loss.item(), "seconds": seconds, "tokens": ids.numel(), "peak_bytes": peak}), flush=True)


main()
