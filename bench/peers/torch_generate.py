"""Greedy generation by transformers on this machine's CPU, for bench/generation.py.

    torch_generate.py MODEL fp32|bf16 THREADS PROMPT_TOKENS NEW_TOKENS ROUNDS

Prints one line of JSON: of each round the seconds of the prefill and of every token after it, by wall and processor time; the ids; the greatest
resident size.
"""
import json
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM


class Clock:
    """A streamer, which generate() hands the prompt first and then every token: the seconds between them."""

    def __init__(self):
        self.times = []

    def put(self, _):
        self.times.append((time.perf_counter(), time.process_time()))

    def end(self):
        pass

    def seconds(self, clock):
        return [b[clock] - a[clock] for a, b in zip(self.times, self.times[1:])]


def main():
    model, precision, threads, prompt, made, rounds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(model, dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[precision])
    vocabulary = model.config.vocab_size
    ids = torch.tensor([[(i * 7919 + 13) % vocabulary for i in range(prompt)]])  # as bench/generation.cpp
    document = {"rounds": []}

    def generate(new_tokens):
        clock = Clock()
        # No end token: each program makes as many. Only the last logits are wanted of a prompt, as generate() asks.
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False,
                                eos_token_id=None, pad_token_id=0, streamer=clock)
        return clock, output[0, prompt:].tolist()

    generate(2)
    for _ in range(rounds):
        clock, new = generate(made)
        wall, processor = clock.seconds(0), clock.seconds(1)
        document["rounds"].append({"prefill": wall[0], "wall": wall[1:], "processor": processor[1:], "ids": new})
    document["peak_rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(document))


main()
