#!/usr/bin/env python3
"""PyTorch's side of bench/attention.py: scaled_dot_product_attention forward and backward, causal, batch 1.

    torch_attention.py THREADS TOKENS HEADS KV_HEADS HEAD_DIM CALLS fp32|bf16 WAY...

Ways to group heads: "gqa" (enable_gqa) or "repeat" (keys and values repeated, as model code did before that). Prints one line of JSON: seconds of
each call by wall and processor time, the same for a matrix product, and by how much operands and calls raised the resident size.
"""
import json
import resource
import sys
import time

import torch

PRODUCT = (1024, 768, 1152)  # rows, depth, columns: as in bench/measure.h


def timed(f):
    wall, processor = time.perf_counter(), time.process_time()
    result = f()
    return result, (time.perf_counter() - wall, time.process_time() - processor)


def by_clock(calls):
    return {"wall": [wall for wall, _ in calls], "processor": [processor for _, processor in calls]}


def attend(q, k, v, way):
    if way == "gqa":
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def run(tokens, heads, kv_heads, head_dim, calls, dtype, way):
    """Operands lie as a model's projections leave them: [1, tokens, heads, head_dim], seen as [1, heads, tokens, head_dim]."""
    def operand(n):
        return (torch.rand(1, tokens, n, head_dim) - 0.5).to(dtype).transpose(1, 2).requires_grad_()
    q, k, v = operand(heads), operand(kv_heads), operand(kv_heads)
    d_output = torch.rand(1, tokens, heads, head_dim).to(dtype).transpose(1, 2)
    forward, backward = [], []
    for _ in range(calls):
        output, seconds = timed(lambda: attend(q, k, v, way))
        forward.append(seconds)
        backward.append(timed(lambda: output.backward(d_output))[1])
        q.grad = k.grad = v.grad = output = None
    return {"forward": by_clock(forward), "backward": by_clock(backward)}


def peak_resident_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    threads, tokens, heads, kv_heads, head_dim, calls = map(int, sys.argv[1:7])
    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if sys.argv[7] == "bf16" else torch.float32
    run(64, heads, kv_heads, head_dim, 1, dtype, "gqa")  # loads code
    before = peak_resident_bytes()
    ways = {}
    for way in sys.argv[8:]:
        ways[way] = run(tokens, heads, kv_heads, head_dim, calls, dtype, way)
    bytes_used = peak_resident_bytes() - before
    rows, depth, columns = PRODUCT
    a, b = torch.rand(rows, depth), torch.rand(depth, columns)
    product = by_clock([timed(lambda: a @ b)[1] for _ in range(20)])
    print(json.dumps({"ways": ways, "product": product, "product_flops": 2 * rows * depth * columns, "bytes": bytes_used}))


main()
