#!/usr/bin/env python3
"""Compares every optimizer with the program that people know it from, over many steps on tensors of random numbers.

    scripts/compare_optimizers.py [--tests PROGRAM] [--steps N] [--bitsandbytes FOLDER]

The references: torch.optim's AdamW, SGD and Muon, transformers' Adafactor, and bitsandbytes' own formulas in PyTorch for AdamW8bit
and Lion (bitsandbytes runs its 8-bit optimizers on GPUs alone; the formulas are those that it gives to other backends). Each makes
N steps (default 25) from the same weights with the same gradients, in fp32; then the unit test OptimizerSteps (of PROGRAM, default
build/release/tests/test_kernels) makes them with Heddle's kernels. Compared are the weights, in relation to the greatest distance
that one of them went, and the codes of 8-bit states. torch.optim.Muon rounds to bf16 inside its Newton-Schulz iteration, Heddle does
not: it is compared with the same code in fp32, and as it is to a wider bound.

Needs the packages of scripts/peer_environment, and starts itself again in that environment where they are missing; bitsandbytes is
looked for beside them or in FOLDER (`pip install --no-deps --target FOLDER bitsandbytes`). What is not there is named and left out.
Prints a line a case: its error and its bound.
"""
import argparse
import importlib
import os
import subprocess
import sys
import tempfile

import peer_python

peer_python.require("torch", "transformers", "numpy")

import torch
from transformers.optimization import Adafactor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DECAY = 0.1
FP32_BOUND = 2e-6  # relative; f32 rounding of operations that are done in another order


class Recorder:
    """Writes one case: what both programs start from, and where the reference ends."""

    def __init__(self, folder, steps):
        self.folder, self.steps = folder, steps

    def record(self, name, shape, take_step, lr, bound, **settings):
        """`take_step(parameter, step, states)` makes one step of the reference; `parameter` has its gradient."""
        generator = torch.Generator().manual_seed(len(name) + sum(shape))
        weights = torch.randn(shape, generator=generator) * 0.1
        # Gradients of several magnitudes that also have a part in common, as those of a model have.
        common = torch.randn(shape, generator=generator) * 0.02
        scales = torch.exp(torch.randn(shape, generator=generator))
        gradients = [(common + torch.randn(shape, generator=generator) * 0.05) * scales for _ in range(self.steps)]
        parameter, states = torch.nn.Parameter(weights.clone()), {}
        for step, gradient in enumerate(gradients, 1):
            parameter.grad = gradient.clone()
            take_step(parameter, step, states)
        case = os.path.join(self.folder, name)
        os.makedirs(case)
        for file, tensor in [("weights", weights), ("gradients", torch.stack(gradients)), ("expected", parameter.detach())] + \
                [(key, value) for key, value in states.items() if key.startswith(("codes", "map"))]:
            tensor.contiguous().numpy().tofile(os.path.join(case, file + ".bin"))
        numbers = dict(settings, steps=self.steps, lr=lr, bound=bound, rows=shape[0] if len(shape) == 2 else 0, columns=shape[1] if len(shape) == 2 else 0)
        with open(os.path.join(case, "case.txt"), "w", encoding="utf-8") as f:
            f.write("".join(f"{key} {float(value)!r}\n" for key, value in numbers.items()))


def of_class(make):
    """A step of an optimizer class, made at the first step."""
    def take_step(parameter, step, states):
        if step == 1:
            states["optimizer"] = make([parameter])
        states["optimizer"].step()
    return take_step


def decoupled(take_step, lr):
    """The step after a decay that goes through no momentum."""
    def decay_first(parameter, step, states):
        parameter.data.mul_(1 - lr * DECAY)
        take_step(parameter, step, states)
    return decay_first


def record_torch(recorder):
    betas = dict(beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=DECAY)
    recorder.record("adamw-torch", (70, 130), of_class(lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.95), weight_decay=DECAY, foreach=False)), 1e-2,
                    FP32_BOUND, **betas)
    for name, arguments in (("plain", {}), ("momentum", {"momentum": 0.9, "dampening": 0.1}), ("nesterov", {"momentum": 0.9, "nesterov": True})):
        recorder.record("sgd-" + name, (70, 130), decoupled(of_class(lambda p, a=arguments: torch.optim.SGD(p, lr=0.1, foreach=False, **a)), 0.1), 0.1, FP32_BOUND,
                        weight_decay=DECAY, **arguments)
    recorder.record("adafactor-matrix", (70, 130), of_class(lambda p: Adafactor(p, lr=1e-2, weight_decay=DECAY, scale_parameter=False, relative_step=False)),
                    1e-2, FP32_BOUND, weight_decay=DECAY)
    recorder.record("adafactor-vector", (1030,), of_class(lambda p: Adafactor(p, lr=1e-2, scale_parameter=False, relative_step=False)), 1e-2, FP32_BOUND)


def record_muon(recorder):
    muon = importlib.import_module("torch.optim._muon")
    rounding = muon._zeropower_via_newtonschulz

    def in_fp32(grad, coefficients, steps, eps):
        a, b, c = coefficients
        x = grad.T if grad.size(0) > grad.size(1) else grad
        x = x / x.norm().clamp(min=eps)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x.T if grad.size(0) > grad.size(1) else x

    for shape in ((64, 150), (150, 64)):
        rates = {"original": max(1.0, shape[0] / shape[1]) ** 0.5, "match_rms_adamw": 0.2 * max(shape) ** 0.5}
        for rule, rate in rates.items():
            make = of_class(lambda p, r=rule: torch.optim.Muon(p, lr=2e-2, weight_decay=DECAY, momentum=0.95, adjust_lr_fn=r))
            settings = dict(momentum=0.95, nesterov=1, weight_decay=DECAY, rate=rate)
            muon._zeropower_via_newtonschulz = in_fp32
            recorder.record(f"muon-{shape[0]}x{shape[1]}-{rule}-fp32", shape, make, 2e-2, 5e-6, **settings)
            muon._zeropower_via_newtonschulz = rounding
            recorder.record(f"muon-{shape[0]}x{shape[1]}-{rule}-bf16", shape, make, 2e-2, 2e-2, **settings)


def record_bitsandbytes(recorder):
    try:
        functional = importlib.import_module("bitsandbytes.functional")
        formulas = importlib.import_module("bitsandbytes.backends.triton.kernels_optim")
    except ImportError as e:
        print(f"left out: adamw_8bit and lion of bitsandbytes, which is not there ({e})")
        return

    def step_8bit(parameter, step, states):
        count, blocks = parameter.numel(), -(-parameter.numel() // 256)
        if step == 1:
            states.update(codes1=torch.zeros(count, dtype=torch.uint8), codes2=torch.zeros(count, dtype=torch.uint8), absmax1=torch.zeros(blocks),
                          absmax2=torch.zeros(blocks), map1=functional.create_dynamic_map(signed=True), map2=functional.create_dynamic_map(signed=False))
        formulas.optimizer_update_8bit_blockwise_pytorch(
            parameter.data.view(-1), parameter.grad.view(-1), states["codes1"], states["codes2"], 0.9, 0.95, 0.0, 0.0, 1e-8, step, 1e-2, states["map1"],
            states["map2"], states["absmax1"], states["absmax2"], DECAY, 1.0, False, optimizer_name="adam")

    def step_lion(parameter, step, states):
        if step == 1:
            states["exp_avg"] = torch.zeros_like(parameter)
        torch.ops.bitsandbytes.optimizer_update_32bit("lion", parameter.grad, parameter.data, states["exp_avg"], None, None, 0.0, 0.0, 0.9, 0.99, 0.0, 0.0,
                                                      0.0, DECAY, step, 1e-2, 1.0, False)

    # A code at the middle between two values may fall to either side after a rounding, and from then on the weights differ by it.
    recorder.record("adamw_8bit-bitsandbytes", (70, 130), step_8bit, 1e-2, 1e-4, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=DECAY, code_bound=1e-3)
    recorder.record("lion-bitsandbytes", (70, 130), step_lion, 1e-2, FP32_BOUND, beta1=0.9, beta2=0.99, weight_decay=DECAY)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", default=os.path.join(ROOT, "build/release/tests/test_kernels"), help="the program with the unit tests of the kernels")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--bitsandbytes", help="a folder that holds it")
    arguments = parser.parse_args()
    if arguments.bitsandbytes:
        sys.path.append(arguments.bitsandbytes)
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder, arguments.steps)
        record_torch(recorder)
        record_muon(recorder)
        record_bitsandbytes(recorder)
        return subprocess.run([arguments.tests, "--gtest_filter=OptimizerSteps.*", "--gtest_brief=1"],
                              env=dict(os.environ, HEDDLE_OPTIMIZER_STEPS=folder), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
