"""Trains with PyTorch over gloo on the CPU, a rank a process, and prints times and peak memory as one JSON document on rank 0.

Started by bench/distributed.py through torch.distributed.run. --engine ddp, fsdp2, or deepspeed with --stage.
"""
import argparse
import json
import os
import resource
import time

import torch
import torch.distributed as dist

import torch_models


def adamw(model, recipe):
    return torch.optim.AdamW(torch_models.parameter_groups(model, recipe["weight_decay"]), lr=recipe["learning_rate"], betas=(recipe["adam_beta1"], recipe["adam_beta2"]),
                             eps=recipe["adam_epsilon"], fused=True)


def stepper(engine, stage, model, recipe):
    """A function that takes one optimizer step on (ids, labels) and returns the rank's loss."""
    if engine == "deepspeed":
        import deepspeed
        config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": recipe["max_grad_norm"],
                  "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
        wrapped, _, _, _ = deepspeed.initialize(model=model, optimizer=adamw(model, recipe), config=config)

        def step(ids, labels):
            loss = wrapped(ids, labels)
            wrapped.backward(loss)
            wrapped.step()
            return loss.item()
        return step
    if engine == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        for block in model.blocks:
            fully_shard(block)
        wrapped = fully_shard(model)
    else:
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = adamw(model, recipe)

    def step(ids, labels):
        loss = wrapped(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--recipe", required=True, help="JSON")
    parser.add_argument("--batch", type=int, required=True, help="rows of a step, of all ranks")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--engine", choices=("ddp", "fsdp2", "deepspeed"), required=True)
    parser.add_argument("--stage", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    with open(args.config) as f:
        config = json.load(f)
    with open(args.rows) as f:
        rows = torch.tensor([json.loads(line)["input_ids"] for line in f])
    model = torch_models.build(config)
    num_parameters = sum(p.numel() for p in model.parameters())
    step = stepper(args.engine, args.stage, model, json.loads(args.recipe))
    seconds, losses, each = [], [], args.batch // ranks
    for k in range(args.steps):
        start = time.perf_counter()
        first = k * args.batch + rank * each
        batch = rows[first:first + each]
        losses.append(step(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()))
        seconds.append(time.perf_counter() - start)
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024], dtype=torch.int64)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "losses": losses, "num_parameters": num_parameters, "peak_rss": int(peak)}), flush=True)
    dist.destroy_process_group()


main()
