"""Trains with PyTorch on the CPU and prints the time of each step as one JSON document. Started by bench/peers.py, a process a round.

AdamW is the fused one, with decay on matrices only; gradients are clipped by their global norm, as Heddle does in every step.
"""
import argparse
import json
import time

import torch

import torch_models


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--recipe", required=True, help="JSON")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="autocast: fp32 weights, products in bf16")
    parser.add_argument("--transformers", action="store_true", help="transformers' model class instead of torch_models'")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    with open(args.config) as f:
        config = json.load(f)
    with open(args.rows) as f:
        rows = torch.tensor([json.loads(line)["input_ids"] for line in f])
    recipe = json.loads(args.recipe)
    model = torch_models.Transformers(config) if args.transformers else torch_models.build(config)
    model.train()
    num_parameters = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(torch_models.parameter_groups(model, recipe["weight_decay"]), lr=recipe["learning_rate"], betas=(recipe["adam_beta1"], recipe["adam_beta2"]),
                                  eps=recipe["adam_epsilon"], fused=True)
    run = torch.compile(model) if args.compile else model
    seconds, losses = [], []
    for step in range(args.steps):
        start = time.perf_counter()
        batch = rows[step * args.batch:(step + 1) * args.batch]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            loss = run(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "losses": losses, "num_parameters": num_parameters}))


main()
