"""Random strings that tokenizers find hard, and what comparing `heddle tokenize` on them needs."""
import json
import subprocess
import tempfile

WORDS = "the of and to in is it's I'LL we've he'D don't THEY'RE 'tis hello world Hello WORLD naïve café Straße ΑΒΓ привет 你好 日本語 カタカナ ひらがな 한국어 مرحبا שלום नमस्ते ไทย".split()
PIECES = WORDS + ["<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "[CLS]", "[MASK]", "[mask]", "<0x41>", "<0xE2>", "##ing", "▁", "▁▁", "_", "\u0000", "\u017f", "'\u017f", "İ",
                  " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\u200d", "\ufeff", "\u0085", "1", "12", "2024", "3.14", "١٢٣", "½", "Ⅷ", "①",
                  "e\u0301", "a\u0323\u0302", "\u0301", "\u0345\u0334", "ﬁ", "Å", "가", "\u1100\u1161\u11a8", "👍", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "🏳️‍🌈", ".", ",", "!?", "...", "—", "“", "”", "(", ")", "{", "}", "==", "->", "//", "#", "@",
                  "\ufffd", "\U0010ffff", "\U000e0001", "\u0378", "\U00010ffe", "\U00011938", "\u07fd", "\U00016d40", "\U0001e5d0", "\u1c89", "</w>", "|", "~", "\\", "\"", "'", "`"]


def hard_string(r):
    kind = r.random()
    if kind < 0.55:
        return "".join(r.choice(PIECES) for _ in range(r.randint(0, 12)))
    if kind < 0.7:
        return r.choice(["", " "]).join(r.choice(WORDS) for _ in range(r.randint(1, 8)))
    if kind < 0.85:
        return "".join(chr(r.randint(0, 0x250)) for _ in range(r.randint(0, 20)))
    top = r.choice([0x3000, 0x10000, 0x1F000, 0x20000, 0x110000])
    codes = (r.randrange(top) for _ in range(r.randint(0, 16)))
    return "".join(chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF)


def heddle(program, path, values, decode, special):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(values, f)
        f.flush()
        command = [program, "tokenize", path, "--strings", f.name, "--json"]
        command += ["--decode"] if decode else ["--add_special_tokens", "true" if special else "false"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def report(name, checks):
    """Each check: what, inputs, got, wanted. Prints a line, and the first differences; returns their number."""
    wrong, shown = 0, []
    for what, inputs, got, want in checks:
        bad = [i for i, (a, b) in enumerate(zip(got, want)) if a != b]
        wrong += len(bad)
        shown += ["    %s %.300r\n      got  %.300r\n      want %.300r" % (what, inputs[i], got[i], want[i]) for i in bad[:2]]
    print("%-60s %d strings, %d differences" % (name, len(checks[0][1]), wrong), flush=True)
    for line in shown:
        print(line)
    return wrong
