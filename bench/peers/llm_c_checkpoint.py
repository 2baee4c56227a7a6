"""Writes a GPT-2 from scratch as llm.c reads it: llm_c_checkpoint.py CONFIG_JSON FILE. Run in the environment that has torch.

256 int32 (magic, version 3: fp32 with a padded vocabulary, positions, vocabulary, layers, heads, width, padded vocabulary), then each
kind of parameter for all layers, [outputs, inputs].
"""
import json
import sys

import torch


def main():
    config, path = json.loads(sys.argv[1]), sys.argv[2]
    vocabulary, positions, width, layers = (config[key] for key in ("vocab_size", "n_positions", "n_embd", "n_layer"))
    padded = -(-vocabulary // 128) * 128
    spread = config["initializer_range"]
    torch.manual_seed(1)

    def normal(rows, columns, scale=1.0):
        return torch.randn(rows, columns) * spread * scale

    residual = (2 * layers) ** -0.5
    embedding = torch.cat((normal(vocabulary, width), torch.zeros(padded - vocabulary, width)))
    ones, zeros = torch.ones(layers, width), torch.zeros(layers, width)
    parameters = (embedding, normal(positions, width),
                  ones, zeros, normal(layers * 3 * width, width), torch.zeros(layers, 3 * width), normal(layers * width, width, residual), zeros,
                  ones, zeros, normal(layers * 4 * width, width), torch.zeros(layers, 4 * width), normal(layers * width, 4 * width, residual), zeros,
                  torch.ones(width), torch.zeros(width))
    header = torch.zeros(256, dtype=torch.int32)
    header[:8] = torch.tensor((20240326, 3, positions, vocabulary, layers, config["n_head"], width, padded))
    with open(path, "wb") as f:
        for tensor in (header, *parameters):
            f.write(tensor.contiguous().numpy().tobytes())


main()
