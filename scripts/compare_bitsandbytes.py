#!/usr/bin/env python3
"""Compares NF4 and FP4 tensors of src/quantize with those of bitsandbytes, byte for byte: codes, scales, nested scales,
their tables, the JSON text, and decoded values; on random tensors, edge cases, and with --model on those of a model.

    pip install torch bitsandbytes safetensors numpy
    scripts/compare_bitsandbytes.py [--model model.safetensors]

bitsandbytes (0.50.2) subtracts the mean of the scales before it quantizes them, and its sum in fp32 depends on threads
and vector width. So both sides are compared with its mean; how far the means are apart is printed."""

import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import bitsandbytes.functional as bnb
import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
BRIDGE = r"""
#include "quantize/bitsandbytes.h"
#include "quantize/four_bit.h"
using namespace heddle;
extern "C" {
void blocks(const char* kind, const float* values, long count, std::byte* codes, float* scales) {
  encode_four_bit_blocks(four_bit_type(kind, false), {values, static_cast<std::size_t>(count)}, codes, scales);
}
void nest(const float* scales, long count, float mean, std::byte* codes, float* nested) {
  encode_nested_scales({scales, static_cast<std::size_t>(count)}, mean, codes, nested);
}
float mean(const float* scales, long count) { return mean_scale({scales, static_cast<std::size_t>(count)}); }
void scale_values(float* out) { for (float value : nested_scale_values()) *out++ = value; }
void code_values(const char* kind, float* out) { for (float value : four_bit_values(four_bit_type(kind, false))) *out++ = value; }
long bytes(const char* kind, int nested, long elements) { return storage_bytes(four_bit_type(kind, nested != 0), elements); }
void tensor(const char* kind, int nested, const float* values, long elements, std::byte* out) {
  const DType type = four_bit_type(kind, nested != 0);
  FourBitEncoder encoder(type, elements, {out, static_cast<std::size_t>(storage_bytes(type, elements))});
  constexpr long kPiece = 64 * 256;
  for (long i = 0; i < elements; i += kPiece)
    encoder.encode(i, {values + i, static_cast<std::size_t>(std::min(kPiece, elements - i))});
  encoder.finish();
}
void decode(const char* kind, int nested, const std::byte* tensor, long elements, float* out) {
  decode_four_bit(four_bit_type(kind, nested != 0), tensor, elements, 0, elements, out);
}
int text(const char* kind, int nested, const char* dtype, const long* shape, int rank, double offset, char* out) {
  BitsandbytesState state;
  state.quant_type = kind;
  state.torch_dtype = dtype;
  state.shape.assign(shape, shape + rank);
  state.nested = nested != 0;
  state.nested_offset = offset;
  const std::string result = quant_state_text(state);
  std::copy(result.begin(), result.end(), out);
  return static_cast<int>(result.size());
}
}
"""


def build_bridge(folder):
    source, library = folder / "bridge.cpp", folder / "bridge.so"
    source.write_text("#include <algorithm>\n" + BRIDGE)
    names = ("quantize/four_bit.cpp", "quantize/dynamic_map.cpp", "quantize/bitsandbytes.cpp", "base/dtype.cpp")
    sources = [source, *(ROOT / "src" / name for name in names)]
    flags = ["-std=c++20", "-O2", "-ffp-contract=off", "-shared", "-fPIC", f"-I{ROOT}/src"]
    subprocess.run(["g++", *flags, *sources, "-o", library, "-lfmt"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.mean.restype = ctypes.c_float
    loaded.bytes.restype = ctypes.c_long
    return loaded


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


class Comparison:
    def __init__(self, bridge):
        self.bridge, self.failures, self.checks, self.mean_distances = bridge, 0, 0, []

    def expect(self, name, ours, theirs):
        self.checks += 1
        if ours.tobytes() != theirs.tobytes():
            self.failures += 1
            mine, other = (np.frombuffer(values.tobytes(), np.uint8) for values in (ours, theirs))
            count = np.count_nonzero(mine != other) if mine.size == other.size else "all"
            print(f"DIFFERENT {name}: {count} of {len(theirs.tobytes())} bytes")

    def compare(self, name, tensor):
        for kind in ("nf4", "fp4"):
            self.compare_kind(kind, f"{kind} of {name}", tensor)

    def compare_kind(self, kind, name, tensor):
        of_kind = kind.encode()
        values = tensor.float().contiguous().numpy().reshape(-1)
        count, blocks = values.size, -(-values.size // 64)
        codes, scales = np.zeros(-(-count // 2), np.uint8), np.zeros(blocks, np.float32)
        self.bridge.blocks(of_kind, pointer(values), ctypes.c_long(count), pointer(codes), pointer(scales))
        for nested in (0, 1):
            label = f"{name}, {'double' if nested else 'single'}"
            packed, state = bnb.quantize_4bit(tensor, blocksize=64, quant_type=kind, compress_statistics=bool(nested))
            self.expect(f"{label}: codes", codes, packed.numpy().reshape(-1))
            whole = np.zeros(self.bridge.bytes(of_kind, nested, ctypes.c_long(count)), np.uint8)
            self.bridge.tensor(of_kind, nested, pointer(values), ctypes.c_long(count), pointer(whole))
            self.expect(f"{label}: codes in memory", whole[:codes.size], codes)
            begin, mean = -(-count // 8) * 4, 0.0
            if nested:
                mean = state.offset.item()
                inner, outer = np.zeros(blocks, np.uint8), np.zeros(-(-blocks // 256), np.float32)
                self.bridge.nest(pointer(scales), ctypes.c_long(blocks), ctypes.c_float(mean), pointer(inner),
                                 pointer(outer))
                self.expect(f"{label}: codes of scales", inner, state.absmax.numpy())
                self.expect(f"{label}: nested scales", outer, state.state2.absmax.numpy())
                own = np.float32(self.bridge.mean(pointer(scales), ctypes.c_long(blocks)))
                self.mean_distances.append(abs(int(own.view(np.int32)) - int(np.float32(mean).view(np.int32))))
                # The tensor in memory with their mean, to decode what they decode.
                layout = np.concatenate([inner, np.zeros(-blocks % 4, np.uint8), outer.view(np.uint8),
                                         np.array([mean], np.float32).view(np.uint8)])
                if own == np.float32(mean):
                    self.expect(f"{label}: scales in memory", whole[begin:], layout)
                whole[begin:] = layout
            else:
                self.expect(f"{label}: scales", scales, state.absmax.numpy())
                self.expect(f"{label}: scales in memory", whole[begin:], scales)
            decoded = np.zeros(count, np.float32)
            self.bridge.decode(of_kind, nested, pointer(whole), ctypes.c_long(count), pointer(decoded))
            # Through the plain backend: the others decode through 16 bits, or not at all for odd widths.
            scale = state.absmax
            if nested:
                outer_scale = state.state2.absmax.repeat_interleave(256)[:blocks]
                scale = state.state2.code[scale.long()] * outer_scale + state.offset
            unpacked = torch.stack([packed.reshape(-1) >> 4, packed.reshape(-1) & 15], 1).reshape(-1)[:count]
            theirs = state.code[unpacked.long()] * scale.repeat_interleave(64)[:count]
            self.expect(f"{label}: decoded", decoded, theirs.numpy())
            text = ctypes.create_string_buffer(4096)
            shape = (ctypes.c_long * tensor.dim())(*tensor.shape)
            dtype = str(tensor.dtype).removeprefix("torch.").encode()
            length = self.bridge.text(of_kind, nested, dtype, shape, tensor.dim(), ctypes.c_double(mean), text)
            stored = state.as_dict(packed=True)[f"quant_state.bitsandbytes__{kind}"].numpy()
            self.expect(f"{label}: JSON", np.frombuffer(text.raw[:length], np.uint8), stored)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, help="a safetensors file whose matrices are compared too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(build_bridge(pathlib.Path(folder)))
        table = np.zeros(256, np.float32)
        comparison.bridge.scale_values(pointer(table))
        comparison.expect("table of scales", table, bnb.create_dynamic_map().numpy())
        for kind in ("nf4", "fp4"):
            values = np.zeros(16, np.float32)
            comparison.bridge.code_values(kind.encode(), pointer(values))
            comparison.expect(f"table of {kind}", values, bnb.get_4bit_type(kind, device="cpu").numpy())
        generator = torch.Generator().manual_seed(1)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for shape in ((1,), (7,), (64,), (63, 65), (576, 576), (1536, 576), (300, 1001), (2048, 1024)):
                for power in (1, 5):  # the second has outliers
                    values = (torch.randn(shape, generator=generator) * 0.02) ** power
                    comparison.compare(f"{dtype} {list(shape)} power {power}", values.to(dtype))
        comparison.compare("zeros", torch.zeros(1000))
        comparison.compare("some zero blocks", torch.cat([torch.zeros(640), torch.randn(999, generator=generator)]))
        comparison.compare("tiny", torch.randn(1000, generator=generator) * 1e-39)
        for kind in ("nf4", "fp4"):
            edges = bnb.get_4bit_type(kind, device="cpu").sort().values
            middle = (edges[:-1] + edges[1:]) / 2
            below, above = (torch.nextafter(middle, torch.tensor(towards)) for towards in (-9.0, 9.0))
            around = torch.cat([middle, below, above, edges])
            around = torch.cat([around, torch.zeros(-around.numel() % 64)])
            comparison.compare(f"midpoints of {kind}", around)
            comparison.compare(f"midpoints of {kind} times 3.7", around * 3.7)
        if options.model:
            from safetensors import safe_open
            with safe_open(options.model, "pt") as file:
                for name in file.keys():
                    if len(file.get_slice(name).get_shape()) == 2:
                        comparison.compare(name, file.get_tensor(name))
        distances = comparison.mean_distances
        equal = sum(d == 0 for d in distances)
        print(f"means: {equal} of {len(distances)} equal, others at most {max(distances)} last places apart")
        print(f"{comparison.checks} comparisons, {comparison.failures} differ")
        return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
