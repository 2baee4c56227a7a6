#!/usr/bin/env python3
"""Compares `heddle tokenize` on SentencePiece files with PyPI `sentencepiece` on random hard strings: ids, and text of random ids.

    compare_sentencepiece.py [--heddle PROGRAM] [--strings N] [--seed S] [TOKENIZER.model ...]
    compare_sentencepiece.py --variants                  small models trained here, one for each option that decides ids
    compare_sentencepiece.py --folders TOKENIZER.model   model folders, against the slow LlamaTokenizer of transformers 4

Needs: pip install sentencepiece protobuf; for --folders also transformers==4.57.1 and tokenizers. Exit code 1 if anything differs.
"""
import argparse
import itertools
import json
import os
import random
import shutil
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from hard_strings import PIECES, WORDS, hard_string, heddle, report


def random_ids(r, model, count):
    """Lists of ids, bytes among them and text broken anywhere; no control pieces: `heddle tokenize --decode` shows them."""
    visible = [i for i in range(model.get_piece_size()) if not model.is_control(i)]
    some_bytes = [i for i in visible if model.is_byte(i)]
    pick = lambda: r.choice(some_bytes) if some_bytes and r.random() < 0.5 else r.choice(visible)
    return [[pick() for _ in range(r.randint(0, 12))] for _ in range(count)]


def compare_file(program, path, texts, seed, name=None):
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    ids = [model.encode(text) for text in texts]
    some = [[i for i in x if not model.is_control(i)] for x in ids] + random_ids(random.Random(seed), model, len(texts))
    return report(name or os.path.basename(path), [
        ("encode", texts, heddle(program, path, texts, False, False), ids),
        ("decode", some, heddle(program, path, some, True, False), [model.decode(x) for x in some])])


TRAINED = {
    "plain": {},
    "identity": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "nfkc_cf": {"normalization_rule_name": "nmt_nfkc_cf"},
    "no prefix": {"add_dummy_prefix": False},
    "suffix": {"treat_whitespace_as_suffix": True},
    "bytes": {"byte_fallback": True, "character_coverage": 0.99},
    "rare characters": {"character_coverage": 0.98},
    "digits": {"split_digits": True, "allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
    "symbols": {"user_defined_symbols": ["<u>", "the", "th", "  ", "é", "日", "\u2581x"], "control_symbols": ["<c>", "{"], "byte_fallback": True},
    "other ids": {"unk_id": 2, "bos_id": -1, "eos_id": 1, "pad_id": 0, "unk_surface": "<?>"},
}


def train(folder, algorithm, options, lines):
    prefix = os.path.join(folder, "m")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=prefix, model_type=algorithm, vocab_size=900, hard_vocab_limit=False, minloglevel=2, **options)
    return prefix + ".model"


def edited(path, edit):
    proto = sentencepiece_model_pb2.ModelProto.FromString(open(path, "rb").read())
    edit(proto)
    with open(path, "wb") as f:
        f.write(proto.SerializeToString())


def leave_unused(proto):
    """Every third normal piece of more than one character is not to be used."""
    normal = [p for p in proto.pieces if p.type == p.NORMAL and len(p.piece) > 1]
    for piece in normal[::3]:
        piece.type = piece.UNUSED


def tie_scores(proto):
    for i, piece in enumerate(proto.pieces):
        if piece.type == piece.NORMAL:
            piece.score = -float(i // 50)


def keep_spaces(proto):
    proto.normalizer_spec.escape_whitespaces = False


def denormalize(proto):
    proto.denormalizer_spec.CopyFrom(proto.normalizer_spec)
    proto.denormalizer_spec.add_dummy_prefix = False
    proto.denormalizer_spec.escape_whitespaces = False


EDITS = {"unused": leave_unused, "ties": tie_scores, "spaces kept": keep_spaces, "denormalizer": denormalize}


def compare_variants(program, texts, seed):
    r, wrong = random.Random(seed), 0
    # Text of few characters, so that pieces are longer than these.
    lines = ["".join(r.choice([w, w, " ", " " + w, p]) for w, p in zip(r.choices(WORDS, k=8), r.choices(PIECES, k=8))) for _ in range(6000)]
    lines = [line.replace("\0", "").replace("\n", " ") for line in lines]
    for algorithm in ("unigram", "bpe"):
        for name, options in TRAINED.items():
            with tempfile.TemporaryDirectory() as folder:
                wrong += compare_file(program, train(folder, algorithm, options, lines), texts, seed, "%s, %s" % (algorithm, name))
        for (name, edit), base in itertools.product(EDITS.items(), ("plain", "bytes", "symbols")):
            with tempfile.TemporaryDirectory() as folder:
                path = train(folder, algorithm, TRAINED[base], lines)
                edited(path, edit)
                wrong += compare_file(program, path, texts, seed, "%s, %s, %s" % (algorithm, base, name))
    return wrong


def token(content, **flags):
    return {**dict(content=content, lstrip=False, rstrip=False, normalized=False, single_word=False, special=True), **flags}


def folder_configs():
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    yield {}
    for legacy in (True, False):
        yield {**named, "legacy": legacy}
        yield {**named, "legacy": legacy, "add_bos_token": False, "add_eos_token": True}
        yield {**named, "legacy": legacy, "add_prefix_space": False, "pad_token": "[PAD]", "additional_special_tokens": ["the", "café"]}
        for flags in ({}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"lstrip": True, "rstrip": True, "single_word": True}):
            decoder = {"0": token("<unk>"), "1": token("<s>", **flags), "2": token("</s>"), "32000": token("hello", special=False, **flags), "32001": token("[MASK]", **flags),
                       "32005": token("▁▁", special=False), "300": token("renamed")}
            yield {**named, "legacy": legacy, "added_tokens_decoder": decoder}


def compare_folders(program, path, texts):
    from transformers import LlamaTokenizer  # version 4: a slow one
    wrong = 0
    for config in folder_configs():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(path, os.path.join(folder, "tokenizer.model"))
            with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
                json.dump({"tokenizer_class": "LlamaTokenizer", **config}, f)
            slow = LlamaTokenizer.from_pretrained(folder)
            checks = [("special" if s else "encode", texts, heddle(program, folder, texts, False, s), [slow.encode(t, add_special_tokens=s) for t in texts]) for s in (False, True)]
            wrong += report(json.dumps(config, ensure_ascii=False)[:60], checks)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--heddle", default="heddle")
    parser.add_argument("--strings", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--folders", action="store_true")
    args = parser.parse_args()
    r = random.Random(args.seed)
    texts = [hard_string(r) for _ in range(args.strings)]
    wrong = sum(compare_folders(args.heddle, path, texts) if args.folders else compare_file(args.heddle, path, texts, args.seed) for path in args.models)
    if args.variants:
        wrong += compare_variants(args.heddle, texts, args.seed)
    print("%d differences" % wrong)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
