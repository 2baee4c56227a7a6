#!/usr/bin/env python3
"""Writes seed corpora and dictionaries for the fuzzers of JSON, JSON Lines, safetensors, GGUF, model configs, run files, tokenizers, SentencePiece
files, pickles and PyTorch files.

Usage: make_seeds.py FOLDER; then fuzz_NAME FOLDER/NAME -dict=FOLDER/NAME.dict
"""
import collections
import io
import json
import os
import pickle
import re
import struct
import sys
import zipfile

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "granite",
            "smollm3")
SIZES = {"vocab_size": 130, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
ROPES = (
    {"rope_type": "linear", "factor": 2.5},
    {"type": "dynamic", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 0.5,
     "mscale": 1.0, "mscale_all_dim": 0.5, "attention_factor": 1.5, "truncate": False},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 32},
    {"type": "longrope", "short_factor": [1, 2, 3, 4], "long_factor": [5, 6, 7, 8]},
)
OTHER_KEYS = {
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "dtype": "float32", "bos_token_id": 1,
    "eos_token_id": [1, 2], "attention_bias": True, "mlp_bias": True, "sliding_window": 7, "use_sliding_window": True,
    "max_window_layers": 1, "layer_types": ["sliding_attention", "full_attention"], "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 24, "attn_logit_softcapping": 4.0, "final_logit_softcapping": None,
    "rope_local_base_freq": 100.0, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 16,
    "no_rope_layers": [1, 0], "no_rope_layer_interval": 2, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
    "attention_multiplier": 0.015, "logits_scaling": 8.0, "attention_dropout": 0.1, "resid_pdrop": 0.1,
    "embd_pdrop": 0.1, "initializer_range": 0.02, "quantization_config": {"quant_method": "fp8"}, "is_causal": True,
}
GPT2 = {"model_type": "gpt2", "vocab_size": 128, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64,
        "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False, "attn_pdrop": 0.0}


def model_config_seeds():
    for name in FAMILIES:
        yield json.dumps({"model_type": name, **SIZES})
    for rope in ROPES:
        yield json.dumps({"model_type": "phi3" if "short_factor" in rope else "llama", **SIZES, "rope_scaling": rope})
        yield json.dumps({"model_type": "llama", **SIZES, "rope_parameters": {**rope, "rope_theta": 500.0}})
    yield json.dumps({"model_type": "gemma3_text", **SIZES, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})
    sound = {k: v for k, v in OTHER_KEYS.items() if k != "quantization_config"}
    for name in ("gemma2", "smollm3", "qwen2", "granite"):
        yield json.dumps({"model_type": name, **SIZES, **sound})
    yield json.dumps(GPT2)
    yield '{"model_type": "nemotron_h", "time_step_limit": [0.0, Infinity]}'


def json_seeds():
    yield '{"a": [1, -2, 2.5e3, true, false, null, "h\\u00e9\\ud83d\\ude00\\n"], "b": {"c": {}, "d": []}}'
    yield "[[[[[[[[]]]]]]]]"
    yield '{"a": 1, "a": 2}'
    yield "[NaN, Infinity, -Infinity, 1e999, 18446744073709551616]"
    yield json.dumps({"k%d" % i: i for i in range(20)})
    yield '["\\ud800", "\u00e9\u4e2d\U0001f600"]'


def safetensors_seeds():
    """After a first byte: a whole file ("\\0"), or header and data without the header's length ("\\1")."""
    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    headers = (
        ({}, 0),
        ({"__metadata__": {"format": "pt"}, "w": entry("F32", [2, 2], 0, 16), "b": entry("BF16", [2], 16, 20)}, 20),
        ({"a": entry("U8", [0], 0, 0), "b": entry("I64", [], 0, 8), "c": entry("BOOL", [3, 1], 8, 11)}, 11),
        ({"x": entry("F8_E4M3", [4], 4, 8), "y": entry("F8_E5M2", [4], 0, 4)}, 8),
        ({"w": entry("F32", [2 ** 33, 2 ** 33, 4], 0, 16)}, 16),
        ({"p": entry("F4", [4, 2], 0, 4), "q": entry("F6_E2M3", [4], 4, 7), "r": entry("F8_E8M0", [2], 7, 9), "s": entry("C64", [1], 9, 17)}, 17),
    )
    for header, size in headers:
        text = json.dumps(header).encode()
        yield b"\0" + struct.pack("<Q", len(text)) + text + bytes(size)
        yield b"\1" + text + bytes(size)


def gguf_seeds():
    """After a first byte (1: the metadata is written again too), files with every kind of value and blocks of many types."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    values = [(0, b"\1"), (1, b"\xff"), (2, b"\1\0"), (3, b"\1\0"), (4, struct.pack("<I", 7)), (5, struct.pack("<i", -7)), (6, struct.pack("<f", 0.5)),
              (7, b"\1"), (8, text("hello")), (10, struct.pack("<Q", 1 << 40)), (11, struct.pack("<q", -1)), (12, struct.pack("<d", 0.1)),
              (9, struct.pack("<IQ", 4, 2) + bytes(8)), (9, struct.pack("<IQ", 8, 2) + text("a") + text("")), (9, struct.pack("<IQ", 7, 2) + b"\1\0"),
              (9, struct.pack("<IQ", 6, 1) + struct.pack("<f", 1e30)), (9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 0, 0))]
    types = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 14: (256, 210), 16: (256, 66), 23: (256, 136), 30: (1, 2)}
    for first, pairs in ((1, values[:16]), (0, values[:4]), (0, values[16:]), (1, [])):
        for alignment in (32, 8):
            extra = [] if alignment == 32 else [(4, struct.pack("<I", alignment))]
            keys = ["key.%d" % i for i in range(len(pairs))] + ["general.alignment"] * len(extra)
            head = b"GGUF" + struct.pack("<IQQ", 3, len(types), len(keys))
            head += b"".join(text(k) + struct.pack("<I", kind) + raw for k, (kind, raw) in zip(keys, pairs + extra))
            body = b""
            for kind, (block, size) in types.items():
                head += text("t%d" % kind) + struct.pack("<IQQIQ", 2, block, 2, kind, len(body))
                body += bytes(range(size)) * 2
                body += bytes(-len(body) % alignment)
            yield bytes([first]) + head + bytes(-len(head) % alignment) + body


def jsonl_seeds():
    """After a first byte that chooses: & 3 = 0 a JSON file, 1 plain text, else JSON Lines; & 4 packing is set, & 8 to true; & 16 bad rows are skipped."""
    rows = ['{"text": "ab\\u00e9\\n"}', '{"input_ids": [1, 2, 3]}', '{"input_ids": [5, 6, 7], "labels": [-100, 6, 7], "id": {"a": [1, null]}}',
            '{"text": 5}', '{"input_ids": [1, 2.5]}', '{"messages": []}', '{"text": "a", "text": "b"}', "", " ", "[1]", "{"]
    for choice in (2, 2 + 4, 2 + 4 + 8 + 16 + 64):
        yield bytes([choice]) + "\n".join(rows[:3]).encode()
        yield bytes([choice + 16]) + "\r\n".join(rows).encode()
    for choice in (0, 12, 16 + 32):
        yield bytes([choice]) + ("\ufeff [" + ",\n".join(rows[:3]) + "\n]\n").encode()
        yield bytes([choice]) + rows[0].encode()
    yield b"\x01plain text\n\xc3\xa9 of two lines"
    yield b"\x11broken \xc3( text"


RUN_FILES = (
    "model_name_or_path: m\ntrain_file: [a.jsonl, {path: b.jsonl, weight: 1}]\nmax_steps: 10\nbf16: true\noutput_dir: out\n",
    "config_name: config.json\ntrain_file: a.txt\nnum_train_epochs: 2\nlearning_rate: 3e-4\nlr_scheduler_type: cosine_with_min_lr\n"
    "lr_scheduler_kwargs: {min_lr: 1.0e-5}\nwarmup_ratio: 0.1\nfp16: true\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n",
    '{"config_name": "c.json", "train_file": "a", "max_steps": 3, "deepspeed": {"train_batch_size": "auto", "zero_optimization": {"stage": 1},'
    ' "fp16": {"enabled": true, "initial_scale_power": 8}, "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.95]}}}}',
    "-learning_rate\0001e-3", "-lr_scheduler_kwargs.min_lr\0000", "a: &x [1, *x]\n? b\n: !!str c\n",
)

MODELS = (
    {"type": "BPE", "vocab": {"a": 0, "b": 1, "bb": 2, "<unk>": 3}, "merges": ["b b"], "unk_token": "<unk>", "fuse_unk": True},
    {"type": "BPE", "vocab": {"a": 0, "<0x62>": 1, "aa": 2}, "merges": [["a", "a"]], "byte_fallback": True, "ignore_merges": True},
    {"type": "WordPiece", "vocab": {"[UNK]": 0, "ab": 1, "##ba": 2}, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
     "max_input_chars_per_word": 100},
    {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.5], ["b", -2.0], ["ab", -2.5]], "unk_id": 0, "byte_fallback": False},
    {"type": "WordLevel", "vocab": {"abba": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
)
STEPS = (
    {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True},
                    {"type": "Prepend", "prepend": "a"}, {"type": "Replace", "pattern": {"Regex": "b+"}, "content": "b"}, {"type": "StripAccents"}]},
     "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "a"}, "content": "b"}, {"type": "ByteFallback"},
                 {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}},
    {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "decoder": {"type": "ByteLevel"},
     "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
     "added_tokens": [{"id": 4, "content": "<s>", "single_word": False, "lstrip": True, "rstrip": False, "normalized": False, "special": True}]},
    {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+(?!\\S)"}, "behavior": "Isolated", "invert": False},
                       {"type": "Digits", "individual_digits": True}, {"type": "Punctuation"}, {"type": "Whitespace"}]}},
    {"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
     "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}},
    {"normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
     "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}},
)


def tokenizer_seeds():
    for model in MODELS:
        for steps in STEPS:
            yield json.dumps({"version": "1.0", "added_tokens": [], "model": model, **steps})


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def wire(number, value):
    """A field of a protobuf message: bytes, a float (32 bits) or a whole number."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def charsmap():
    """A double array trie that replaces "b" by "a ", as SentencePiece lays it out: size, units, replacements."""
    units = [0] * 512
    units[0] = 256 << 10
    node = 256 ^ ord("b")
    units[node] = (node ^ 300) << 10 | 1 << 8 | ord("b")
    units[300] = 1 << 31
    return struct.pack("<I", 4 * len(units)) + struct.pack("<%dI" % len(units), *units) + b"a \0"


def sentencepiece_seeds():
    normal, unknown, control, user_defined, unused, byte = 1, 2, 3, 4, 5, 6
    texts = [("<unk>", 0.0, unknown), ("<s>", 0.0, control), ("</s>", 0.0, control), ("\u2581", -1.0, normal), ("a", -2.0, normal), ("b", -2.0, normal), ("\u2581a", -1.5, normal),
             ("ab", -1.5, unused), ("bb", -1.25, normal), ("abb", -1.25, normal), ("\u00e9l", -3.0, user_defined)]
    pieces = b"".join(wire(1, wire(1, t.encode()) + wire(2, s) + wire(3, k)) for t, s, k in texts)
    bytes_too = pieces + b"".join(wire(1, wire(1, b"<0x%02X>" % i) + wire(2, 0.0) + wire(3, byte)) for i in range(256))
    for algorithm in (1, 2):
        for flags in ((0, 0, 1), (1, 1, 1), (1, 1, 0)):
            normalizer = b"".join(wire(number, flag) for number, flag in zip((3, 4, 5), flags))
            yield pieces + wire(2, wire(3, algorithm)) + wire(3, normalizer)
            yield pieces + wire(2, wire(3, algorithm) + wire(24, 1)) + wire(3, normalizer + wire(2, charsmap())) + wire(5, wire(2, charsmap()))
            yield bytes_too + wire(2, wire(3, algorithm) + wire(35, 1) + wire(44, b"?")) + wire(3, normalizer)
    yield b"AA== 0\nAQ== 1\n"


class Plain:
    """Pickles as a class's objects do: __new__, then the state."""


class Tensor:
    """Pickles as PyTorch's tensors do, its storage outside the pickle."""

    def __init__(self, key, count, shape):
        self.key, self.count, self.shape = key, count, shape


class TorchPickler(pickle._Pickler):
    """Writes the names that PyTorch and DeepSpeed write, neither of which is needed for it."""

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Tensor):
            strides = [1] * len(value.shape)
            for axis in range(len(value.shape) - 1, 0, -1):
                strides[axis - 1] = strides[axis] * value.shape[axis]
            self.write(b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n")
            for part in (value.key, "cpu", value.count):
                self.save(part)
            self.write(b"tQ")
            for part in (0, value.shape, tuple(strides), False):
                self.save(part)
            self.write(b"ccollections\nOrderedDict\n)RtR")
        elif isinstance(value, Plain):
            self.write(b"cdeepspeed.runtime.fp16.loss_scaler\nLossScaler\n)\x81")
            self.save(vars(value))
            self.write(b"b")
        else:
            super().save(value, save_persistent_id)


def pickled(value, protocol=2):
    out = io.BytesIO()
    TorchPickler(out, protocol).dump(value)
    return out.getvalue()


def torch_values():
    plain = Plain()
    plain.cur_scale = 1
    group = Tensor("0", 6, (6,))
    yield 0, {"a": Tensor("0", 6, (2, 3)), "b": Tensor("0", 6, (6,))}
    yield 0, {"state_dict": collections.OrderedDict(a=Tensor("0", 6, (1, 6)))}
    yield 1, {"module": {"ids": Tensor("0", 6, (6,))}, "buffer_names": ["ids"], "param_shapes": [{"w": (2, 3)}], "shared_params": {"v": "w"},
              "frozen_param_shapes": {"f": (6,)}, "frozen_param_fragments": {"f": group}, "ds_version": "0.19", "x": [plain, 1.5, None, True, 2 ** 40]}
    for stage, key, base in ((1, "single_partition_of_fp32_groups", "base_optimizer_state"), (3, "fp32_flat_groups", "optimizer_state_dict")):
        yield 2, {"optimizer_state_dict": {"zero_stage": stage, "partition_count": [2] if stage == 1 else 2, key: [group], "loss_scaler": plain,
                                           base: {"state": {0: {"exp_avg": group, "exp_avg_sq": group, "step": 3}}}, "param_alignment_paddings": [[0, 1]]}}


def pickle_seeds():
    for _, value in torch_values():
        yield b"\0" + pickled(value)
    for protocol in (2, 3, 4, 5):
        yield b"\1" + pickle.dumps({"a": [1, -2, 300, 70000, 2 ** 63, 1.5, True, None, "\u00e9", b"bytes"], "b": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4))}, protocol)


def torch_file_seeds():
    storage = struct.pack("<6f", *range(6))
    for kind, value in torch_values():
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for name, data in (("data.pkl", pickled(value)), ("byteorder", b"little"), ("data/0", storage), ("version", b"3\n")):
                archive.writestr("a/" + name, data)
        yield bytes([kind]) + out.getvalue()
        yield (bytes([kind]) + b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + pickled(1001) + pickled({"little_endian": True})
               + pickled(value) + pickled(["0"]) + struct.pack("<q", 6) + storage)


def strings_of(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings_of(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from strings_of(inner)
    elif isinstance(value, str):
        yield value


def main():
    folder = sys.argv[1]
    words = sorted({*FAMILIES, *SIZES, *strings_of(ROPES), *strings_of(OTHER_KEYS), *strings_of(GPT2), "su", "default"})
    dictionaries = {
        "json": ["NaN", "-Infinity", "null", "true", "false", "1e999", "\\ud800"],
        "safetensors": ["dtype", "shape", "data_offsets", "__metadata__", "F32", "BF16", "F8_E4M3", "BOOL", "U8"],
        "gguf": ["GGUF", "general.alignment", "key.0"],
        "jsonl": ["text", "input_ids", "labels", "-100", "messages", "null", "true", "1e3", "\\ud800"],
        "model_config": words,
        "run_file": sorted({word for text in RUN_FILES for word in re.findall(r"[A-Za-z_]+", text)}),
        "tokenizer": sorted({*strings_of(MODELS), *strings_of(STEPS)} - {"", " "}),
        "pickle": ["collections", "OrderedDict", "key"],
        "torch_file": ["PK", "data.pkl", "torch", "FloatStorage", "Size", "storage", "module", "param_shapes", "zero_stage"],
        "sentencepiece": ["<unk>", "<s>", "<0x41>", "ab", "bb"],
    }
    corpora = {"json": json_seeds(), "safetensors": safetensors_seeds(), "gguf": gguf_seeds(), "model_config": model_config_seeds(),
               "tokenizer": tokenizer_seeds(), "jsonl": jsonl_seeds(), "run_file": RUN_FILES,
               "sentencepiece": sentencepiece_seeds(), "pickle": pickle_seeds(), "torch_file": torch_file_seeds()}
    for name, seeds in corpora.items():
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        for i, seed in enumerate(seeds):
            with open(os.path.join(folder, name, "seed%d" % i), "wb") as f:
                f.write(seed if isinstance(seed, bytes) else seed.encode())
        with open(os.path.join(folder, name + ".dict"), "w") as f:
            f.writelines('"%s"\n' % word.replace("\\", "\\\\").replace('"', "\\x22") for word in dictionaries[name]
                         if word.isascii())


main()
