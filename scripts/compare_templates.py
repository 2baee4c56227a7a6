#!/usr/bin/env python3
"""Compares `heddle render` with transformers' apply_chat_template on chat templates of real models, byte for byte.

    compare_templates.py PATH ... [--heddle PROGRAM] [--show N]

A PATH is a template (.jinja), a JSON file with a `chat_template`, or a folder of such. Each renders the conversations below: plain, with a system message, tools, their
calls and results, thoughts, contents in parts, roles that do not alternate, and texts that are hard to keep whole; with and without the generation prompt.
What is right comes from transformers when this runs. Where it fails we must fail, with its message where the template itself raised it. Exit code 1 if anything differs.
"""
import argparse
import json
import os
import sys
import tempfile
import time

import peer_python

peer_python.require("transformers", "jinja2", "tokenizers")

import subprocess  # noqa: E402

import jinja2  # noqa: E402
import tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402

from heddle_program import DEFAULT_PROGRAM, write_json, write_rows  # noqa: E402

EPOCH = 1752584523
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"later\"", "parameters": {
    "type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Größe, 城市"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": ["integer", "null"], "default": 3}, "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}},
        "tags": {"type": "array", "items": {"type": "string"}}}}, "return": {"type": "object", "description": "it"}}}
TIME = {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}}
ASKED = [said("user", "What is the weather in Paris?")]
CALLED = ASKED + [said("assistant", "", tool_calls=[call("get_weather", {"city": "Paris", "days": 2, "where": {"lat": 48.85, "lon": -1e-7}, "tags": ["a", "b"]}, id="call_0123")])]
ANSWERED = CALLED + [said("tool", "{\"temp\": 21.0, \"sky\": \"<clear>\"}", name="get_weather", tool_call_id="call_0123"), said("assistant", "It is 21 degrees.")]
HELLO = [said("user", "Hello"), said("assistant", "Hi there")]

ROWS = [
    {"messages": [said("user", "Hi")]},
    {"messages": HELLO},
    {"messages": [said("system", "You are terse.")] + HELLO + [said("user", "Bye"), said("assistant", "Goodbye.")]},
    {"messages": HELLO + [said("user", "Bye")]},
    {"messages": [said("system", "Only this.")]},
    {"messages": [said("developer", "Be kind.")] + HELLO},
    {"messages": [said("user", "One"), said("user", "Two"), said("assistant", "Three"), said("assistant", "Four")]},
    {"messages": [said("assistant", "I begin"), said("user", "So you do")]},
    {"messages": [said("user", "a"), said("system", "late"), said("user", "b")]},
    {"messages": [said("user", "  spaces \n"), said("assistant", "\n\t tabs \n\n"), said("user", "")]},
    {"messages": [said("user", "emoji 🧵 é́ \u2028 \"quotes\" 'single' \\ back {{ braces }} {% if %}"), said("assistant", "<s> </s> <|im_end|> [INST] x</think>y")]},
    {"messages": [said("user", [{"type": "text", "text": "part one"}, {"type": "text", "text": " and two"}]), said("assistant", [{"type": "text", "text": "seen"}])]},
    {"messages": [said("user", [{"type": "image"}, {"type": "text", "text": "what is it?"}])]},
    {"messages": [said("user", "2+2?"), said("assistant", "<think>\nsum\n</think>\n\n4"), said("user", "3+3?"), said("assistant", "<think>again</think>6")]},
    {"messages": [said("user", "2+2?"), said("assistant", "4", reasoning_content="sum"), said("user", "3+3?"), said("assistant", "6", reasoning_content="again\n")]},
    {"messages": [said("user", "2+2?"), said("assistant", "4", thinking="I add")]},
    {"messages": [said("user", "2+2?")], "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [said("user", "2+2?")], "chat_template_kwargs": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high", "date_string": "1 Jan 2026"}},
    {"messages": ASKED, "tools": [WEATHER, TIME]},
    {"messages": [said("system", "Use tools.")] + ASKED, "tools": [WEATHER]},
    {"messages": CALLED, "tools": [WEATHER]},
    {"messages": ANSWERED, "tools": [WEATHER, TIME]},
    {"messages": ANSWERED},
    {"messages": ASKED + [said("assistant", "Let me see.", reasoning_content="need it", tool_calls=[call("get_weather", "{\"city\": \"Paris\"}", id="abcdefghi"), call("now", {}, id="jklmnopqr")]),
                          said("tool", "sunny", tool_call_id="abcdefghi"), said("tool", "noon", tool_call_id="jklmnopqr")], "tools": [WEATHER, TIME]},
    {"messages": ASKED + [said("assistant", None, tool_calls=[call("now", {})]), said("tool", {"time": 12.5, "zone": None, "ok": True}), said("assistant", "Noon.")], "tools": [TIME]},
    {"messages": ASKED + [{"role": "assistant", "tool_calls": [{"name": "now", "arguments": {}}]}, said("ipython", "x")]},
    {"messages": ASKED + [said("function", "result", name="now")], "chat_template_kwargs": {"documents": [{"title": "A", "text": "B"}], "custom_tools": [WEATHER], "builtin_tools": ["brave_search"]}},
    {"messages": [{"role": "user"}]},
    {"messages": [said("user", "x", name="Ann"), said("assistant", "y", name="Bot", weight=0)]},
    {"messages": [said("critic", "unknown role")]},
    {"messages": [said("user", "turn %d" % i) if i % 2 == 0 else said("assistant", "answer %d" % i) for i in range(13)]},
]


def templates_of(path):
    if os.path.isdir(path):
        return [found for name in sorted(os.listdir(path)) for found in templates_of(os.path.join(path, name))]
    if path.endswith((".jinja", ".jinja2")):
        with open(path, encoding="utf-8", newline="") as f:
            return [(os.path.basename(path), f.read())]
    if not path.endswith(".json"):
        return []
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    template = document.get("chat_template") if isinstance(document, dict) else None
    if isinstance(template, list):
        return [("%s, %s" % (path, t["name"]), t["template"]) for t in template]
    return [(path, template)] if template else []


def oracle(tokenizer, template, row, prompt):
    try:
        text = tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), chat_template=template, tokenize=False, add_generation_prompt=prompt,
                                             **row.get("chat_template_kwargs", {}))
        text.encode()
        return {"text": text}
    except Exception as e:  # whatever a template can raise
        return {"error": str(e), "is_raised": type(e) is jinja2.exceptions.TemplateError}


def ours(program, template, rows, prompt, folder):
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8", newline="") as f:
        f.write(template)
    write_json(os.path.join(folder, "tokenizer_config.json"), SPECIAL)
    file = write_rows(os.path.join(folder, "rows.jsonl"), rows)
    flag = ["--add_generation_prompt"] if prompt else []
    done = subprocess.run([program, "render", folder, file, "--json"] + flag, capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)})
    if done.returncode not in (0, 1):
        raise SystemExit("heddle ended with %d on %r: %s" % (done.returncode, template[:80], done.stderr[-500:]))
    return json.loads(done.stdout) if done.stdout.strip() else [{"error": done.stderr.strip()}] * len(rows)


def difference(want, got):
    if "text" in want:
        if got.get("text") == want["text"]:
            return None
        if "text" not in got:
            return "got error %r, want %.60r" % (got["error"], want["text"])
        a, b = got["text"], want["text"]
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        return "at %d got %r, want %r" % (at, a[max(0, at - 20):at + 40], b[max(0, at - 20):at + 40])
    if "error" not in got:
        return "got %.80r, want error %.120r" % (got["text"], want["error"])
    if want["is_raised"] and want["error"] not in got["error"]:
        return "message %.120r, want %.120r" % (got["error"], want["error"])
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--show", type=int, default=2, help="differences shown of each template")
    options = parser.parse_args()

    class Clock(chat_template_utils.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(EPOCH, tz)

    os.environ["TZ"] = "UTC"
    time.tzset()
    chat_template_utils.datetime = Clock
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **SPECIAL)
    templates = [found for path in options.paths for found in templates_of(path)]
    texts = errors = differing = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, template in templates:
            wrong = []
            for prompt in (False, True):
                for row, got in zip(ROWS, ours(options.heddle, template, ROWS, prompt, folder)):
                    want = oracle(tokenizer, template, row, prompt)
                    texts, errors = texts + ("text" in want), errors + ("error" in want)
                    found = difference(want, got)
                    if found:
                        wrong.append("row %d%s: %s" % (ROWS.index(row), ", prompt" if prompt else "", found))
            differing += bool(wrong)
            if wrong:
                print("DIFF %s: %d\n    %s" % (name, len(wrong), "\n    ".join(wrong[:options.show])), flush=True)
    print("%d templates, %d texts and %d errors: %d templates differ" % (len(templates), texts, errors, differing))
    return differing > 0


if __name__ == "__main__":
    sys.exit(main())
