#!/usr/bin/env python3
"""Compares `heddle tokenize` with PyPI `tokenizers` on random hard strings, id by id and decoded text by text.

    compare_tokenizers.py [--heddle PROGRAM] [--strings N] [--seed S] [TOKENIZER.json ...]
    compare_tokenizers.py --components        each kind of normalizer, pre-tokenizer, model, decoder and flag, in small tokenizers
                                          (--charsmap TOKENIZER.model: Precompiled too)

Needs: pip install tokenizers. Exit code 1 if anything differs.
"""
import argparse
import json
import os
import random
import sys
import tempfile

from tokenizers import Tokenizer

from hard_strings import WORDS, hard_string, heddle, report

def compare(program, path, texts):
    """Prints a line; returns the number of differences."""
    oracle = Tokenizer.from_file(path)
    oracle.no_padding()
    oracle.no_truncation()
    checks = []
    for special in (False, True):
        want = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=special)]
        checks.append(("special" if special else "encode", texts, heddle(program, path, texts, False, special), want))
    checks.append(("decode", want, heddle(program, path, want, True, False), [oracle.decode(ids, skip_special_tokens=False) for ids in want]))
    return report(os.path.basename(path), checks)


def byte_model(**changes):
    """Ids show the bytes of each word and, as the suffix's own bytes, where it ends."""
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": "</w>", "fuse_unk": False, "byte_fallback": True, "ignore_merges": False,
             "vocab": {"<0x%02X>" % i: i for i in range(256)}, "merges": []}
    return {**model, **changes}


def small(**parts):
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": byte_model()}
    return {**document, **parts}


def added(i, content, **flags):
    return {**dict(id=256 + i, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False), **flags}


def normalizers():
    simple = [{"type": t} for t in "NFC NFD NFKC NFKD Lowercase StripAccents Nmt ByteLevel".split()]
    simple += [{"type": "Strip", "strip_left": a, "strip_right": b} for a in (False, True) for b in (False, True)]
    simple += [{"type": "Prepend", "prepend": "▁"}, {"type": "Prepend", "prepend": "ab"}]
    patterns = [{"String": " "}, {"String": "ab"}, {"String": ""}, {"String": "."}, {"Regex": "\\s+"}, {"Regex": "a|b*"}, {"Regex": "\\p{L}+"}, {"Regex": "(?<=e)l"}, {"Regex": "[\\p{Lu}\\p{Lt}]"}, {"Regex": "[[:punct:]]"}]
    simple += [{"type": "Replace", "pattern": p, "content": c} for p in patterns for c in ("", "▁", "xyz")]
    simple += [{"type": "BertNormalizer", "clean_text": bool(k & 1), "handle_chinese_chars": bool(k & 2), "strip_accents": [None, False, True][k % 3], "lowercase": bool(k & 4)} for k in range(24)]
    pair = lambda a, b: {"type": "Sequence", "normalizers": [a, b]}
    return simple + [pair(simple[1], simple[5]), pair({"type": "Strip", "strip_left": True, "strip_right": False}, simple[2])]


def pre_tokenizers():
    behaviors = "Removed Isolated MergedWithPrevious MergedWithNext Contiguous".split()
    simple = [{"type": t} for t in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")]
    simple += [{"type": "ByteLevel", "add_prefix_space": a, "trim_offsets": True, "use_regex": b} for a in (False, True) for b in (False, True)]
    simple += [{"type": "Punctuation", "behavior": b} for b in behaviors] + [{"type": "Digits", "individual_digits": b} for b in (False, True)]
    simple += [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": s, "split": b} for s in ("first", "never", "always") for b in (False, True)]
    simple += [{"type": "UnicodeScripts"}]
    simple += [{"type": "Metaspace", "replacement": "_", "add_prefix_space": True}, {"type": "CharDelimiterSplit", "delimiter": "e"}] + [{"type": "FixedLength", "length": n} for n in (1, 2, 5)]
    patterns = [{"String": " "}, {"String": "e"}, {"String": "lo"}, {"Regex": "\\s"}, {"Regex": "\\w+|[^\\w\\s]+"}, {"Regex": "\\d"}, {"Regex": "\\p{N}{1,3}"}, {"Regex": "[^\\p{L}]?"},
                {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
                {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
                {"Regex": "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}]
    simple += [{"type": "Split", "pattern": p, "behavior": b, "invert": i} for p in patterns for b in behaviors for i in (False, True)]
    chain = lambda *parts: {"type": "Sequence", "pretokenizers": list(parts)}
    level = simple[3]
    scripts = {"type": "UnicodeScripts"}
    return simple + [chain(scripts, {"type": "Digits", "individual_digits": True}), chain(simple[1], scripts), chain({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}, scripts),
                     chain(simple[1], simple[7]), chain({"type": "Digits", "individual_digits": True}, {**level, "use_regex": True}), chain({"type": "Punctuation"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True})]


def template(before, after, repeat=1):
    """One of TemplateProcessing with these ids around the text, which may come more than once."""
    token = lambda i: {"SpecialToken": {"id": "t%d" % i, "type_id": 0}}
    text = [{"Sequence": {"id": "A", "type_id": i}} for i in range(repeat)]
    return {"type": "TemplateProcessing", "single": [*map(token, before), *text, *map(token, after)], "pair": [],
            "special_tokens": {"t%d" % i: {"id": "t%d" % i, "ids": [i, i + 1], "tokens": ["a", "b"]} for i in before + after}}


def post_processors():
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    bert = {"type": "BertProcessing", "sep": ["</s>", 7], "cls": ["<s>", 6]}
    roberta = {"type": "RobertaProcessing", "sep": ["</s>", 9], "cls": ["<s>", 8], "trim_offsets": True, "add_prefix_space": False}
    chain = lambda *parts: {"type": "Sequence", "processors": list(parts)}
    yield from (level, bert, roberta, template([3], [5]), template([3, 9], []), template([], []), template([4], [4], 2), template([3], [], 0))
    yield from (chain(), chain(level), chain(level, template([3], [5])), chain(bert, roberta), chain(bert, level, template([3], [])), chain(chain(roberta), chain(template([], [2]), level)))


def decoders():
    simple = [{"type": t} for t in ("ByteFallback", "Fuse")] + [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]
    simple += [{"type": "Replace", "pattern": p, "content": " "} for p in ({"String": "▁"}, {"Regex": "<0x4[0-9]>"})] + [{"type": "BPEDecoder", "suffix": ">"}]
    simple += [{"type": "Strip", "content": "<", "start": a, "stop": b} for a, b in ((0, 0), (1, 0))] + [{"type": "Metaspace", "replacement": "x", "prepend_scheme": s, "split": True} for s in ("first", "never", "always")]
    simple += [{"type": "BPEDecoder", "suffix": ""}, {"type": "Strip", "content": "0", "start": 0, "stop": 2}, {"type": "Replace", "pattern": {"String": ""}, "content": "-"}]
    simple += [{"type": "WordPiece", "prefix": "<0x6", "cleanup": c} for c in (False, True)] + [{"type": "CTC", "pad_token": "<0x20>", "word_delimiter_token": "0x6", "cleanup": c} for c in (False, True)]
    return simple + [{"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "<0x20>"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}]


def models():
    letters = ["[UNK]"] + [chr(c) for c in range(33, 127)] + ["é", "▁", "你"]
    ids = {t: i for i, t in enumerate(letters)}
    merges = ["h e", "l l", "he ll", "hell o", "o r", "w or", "l d", "wor ld", "▁ t", "e r", "t h", "th e", "▁t he", "▁ ▁", "a b", "ab c", "b c", "a bc"]
    for m in merges:
        ids.setdefault(m.replace(" ", ""), len(ids))
    bpe = byte_model(vocab=ids, merges=merges, byte_fallback=False, end_of_word_suffix=None)
    split = {"type": "WhitespaceSplit"}
    yield small(model={k: v for k, v in bpe.items() if k != "type"})
    yield small(model={**bpe, "dropout": 0.0})
    yield small(model={**bpe, "merges": ["#version: 0.2"] + merges}, pre_tokenizer=split)
    for unk in (None, "[UNK]"):
        for fuse in (False, True):
            for ignore in (False, True):
                yield small(model={**bpe, "unk_token": unk, "fuse_unk": fuse, "ignore_merges": ignore})
                yield small(model={**bpe, "unk_token": unk, "fuse_unk": fuse, "ignore_merges": ignore}, pre_tokenizer=split)
    half = {**ids, **{"<0x%02X>" % b: len(ids) + b for b in range(0x80, 0xC8)}}
    half = {t: i for i, t in enumerate(half)}
    for fuse in (False, True):
        yield small(model={**bpe, "unk_token": "[UNK]", "fuse_unk": fuse, "byte_fallback": True, "vocab": half, "merges": [m.split(" ") for m in merges]})
    decorated = {t: i for i, t in enumerate(["[UNK]"] + [p + c + s for c in letters[1:] for p in ("", "@@") for s in ("", "</w>")] + ["he", "@@ll", "hell", "hello</w>", "@@o</w>x"])}
    yield small(model={**bpe, "unk_token": "[UNK]", "vocab": decorated, "merges": ["h @@e", "@@l @@l", "he @@ll", "hell @@o</w>"], "continuing_subword_prefix": "@@", "end_of_word_suffix": "</w>"}, pre_tokenizer=split)
    word_piece = {t: i for i, t in enumerate(["[UNK]", "[CLS]", "[SEP]"] + letters[1:] + ["##" + c for c in letters[1:]] + ["hello", "##llo", "wor", "##ld", "the", "café"])}
    yield small(model={"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 8, "vocab": word_piece}, pre_tokenizer={"type": "BertPreTokenizer"},
                post_processor={"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True})
    yield small(model={"unk_token": "[UNK]", "continuing_subword_prefix": "", "max_input_chars_per_word": 100, "vocab": word_piece}, pre_tokenizer=split)
    yield small(model={"vocab": {"the": 0, "[UNK]": 1}, "unk_token": "[UNK]"}, pre_tokenizer=split)
    yield small(model={"type": "WordLevel", "unk_token": "[UNK]", "vocab": {t: i for i, t in enumerate(["[UNK]"] + sorted(set(WORDS)))}}, pre_tokenizer={"type": "Whitespace"},
                post_processor={"type": "RobertaProcessing", "sep": ["of", 5], "cls": ["to", 6], "trim_offsets": True, "add_prefix_space": True})
    r = random.Random(5)
    scored = [["<unk>", 0.0]] + [[t, -r.uniform(1, 9)] for t in sorted(ids) if t != "[UNK]"] + [["▁hello", -2.0], ["▁w", -1.5], ["orld", -3.0]]
    for bytes_too in (False, True):
        more = [["<0x%02X>" % b, -20.0] for b in range(256)] if bytes_too else []
        yield small(model={"type": "Unigram", "unk_id": 0, "vocab": scored + more, "byte_fallback": bytes_too}, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
                    decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True})
        yield small(model={"type": "Unigram", "unk_id": 0, "vocab": scored + more, "byte_fallback": bytes_too})
    yield small(model={"unk_id": 0, "vocab": scored}, pre_tokenizer=split)


def added_token_cases():
    for k in range(16):
        flags = dict(single_word=bool(k & 1), lstrip=bool(k & 2), rstrip=bool(k & 4), special=bool(k & 8))
        tokens = [added(i, t, **flags) for i, t in enumerate(["hello", "he", "<s>", "</s>", "[MASK]", " ", "the", "é"])]
        yield small(added_tokens=tokens, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, decoder={"type": "Fuse"})
        mixed = [{**t, "normalized": i % 2 == 0} for i, t in enumerate(tokens)]
        without_space = [{**t, "id": 256 + i} for i, t in enumerate(mixed[:5] + mixed[6:7])]
        yield small(added_tokens=mixed, normalizer={"type": "Lowercase"}, decoder={"type": "Fuse"})
        yield small(added_tokens=mixed, normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})
        yield small(added_tokens=without_space, normalizer={"type": "Strip", "strip_left": True, "strip_right": True}, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}) if k % 2 else \
            small(added_tokens=tokens, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True})


def charsmap_documents(path):
    """Precompiled with the rules of a SentencePiece file. Needs: pip install sentencepiece protobuf."""
    import base64
    from sentencepiece import sentencepiece_model_pb2
    with open(path, "rb") as f:
        proto = sentencepiece_model_pb2.ModelProto.FromString(f.read())
    rules = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    for n in (rules, {"type": "Sequence", "normalizers": [rules, {"type": "Strip", "strip_left": False, "strip_right": True}, spaces]}):
        yield "precompiled", small(normalizer=n)
        yield "precompiled", small(normalizer=n, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True})


def component_documents():
    yield from (("normalizer", small(normalizer=n)) for n in normalizers())
    for n in normalizers():
        yield "normalizer+metaspace", small(normalizer=n, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True})
    yield from (("pre_tokenizer", small(pre_tokenizer=p)) for p in pre_tokenizers())
    yield from (("post_processor", small(post_processor=p)) for p in post_processors())
    yield from (("decoder", small(decoder=d, model=byte_model(end_of_word_suffix=None))) for d in decoders())
    yield from (("model", m) for m in models())
    yield from (("added", a) for a in added_token_cases())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--heddle", default="heddle")
    parser.add_argument("--strings", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--components", action="store_true")
    parser.add_argument("--charsmap", help="with --components: a SentencePiece file, for Precompiled")
    args = parser.parse_args()
    r = random.Random(args.seed)
    texts = [hard_string(r) for _ in range(args.strings)]
    wrong = sum(compare(args.heddle, path, texts) for path in args.tokenizers)
    if args.components:
        for kind, document in [*component_documents(), *(charsmap_documents(args.charsmap) if args.charsmap else [])]:
            with tempfile.NamedTemporaryFile("w", suffix=".json", prefix=kind + "-") as f:
                json.dump(document, f)
                f.flush()
                try:
                    count = compare(args.heddle, f.name, texts)
                except Exception as e:  # a refusal on either side is reported, not fatal
                    print("    refused: %s" % e)
                    count = 1
                if count:
                    print("    %.700s" % json.dumps({k: v for k, v in document.items() if v and k != "model"}, ensure_ascii=False))
                wrong += count
    print("%d differences" % wrong)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
