#!/usr/bin/env python3
"""Compares rows and labels of `heddle data` with those of TRL's SFTTrainer, token by token.

    compare_rows.py --datasets FOLDER MODEL ...      [--heddle PROGRAM] [--max_length N] [--rows N] [--only TEXT]

A MODEL is a folder with config.json, tokenizer.json, tokenizer_config.json and a chat template; FOLDER holds data sets of LLaMA-Factory,
axolotl, torchtune, FastChat and OpenAI under these names. What TRL does not read (Alpaca, ShareGPT's roles and calls, contents in parts) is turned
here into the messages that it does. Labels of the first token are not compared: nothing predicts it. Under assistant_only_loss TRL
needs {% generation %} marks: for templates without, it has its own for some models (that of Qwen2.5 counts the line end of the generation
prompt as the assistant's), so only ids are compared then; where it refuses a template, the case is skipped aloud. A folder may hold marked.jinja,
its template with {% generation %} around what the assistant says: TRL is given that one then, and labels are compared with ours of the template
without. Rows that a template refuses must be skipped by both.
Needs: pip install trl. Exit code 1 if anything differs.
"""
import argparse
import json
import os
import sys
import tempfile

import jinja2
from datasets import Dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

from heddle_program import DEFAULT_PROGRAM, Difference, Heddle, write_json, write_rows


def read(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    return document if isinstance(document, list) else [document]


def message(role, content):
    return {"role": role, "content": content}


def alpaca(row):
    question = row["instruction"] + ("\n" + row["input"] if row["input"] else "")
    return {"prompt": [message("user", question)], "completion": [message("assistant", row["output"])]}


def call(text):
    return {"type": "function", "function": json.loads(text)}


def sharegpt(row):
    roles = {"human": "user", "gpt": "assistant", "system": "system", "observation": "tool"}
    messages = [dict(message("assistant", ""), tool_calls=[call(m["value"])]) if m["from"] == "function_call" else message(roles[m["from"]], m["value"])
                for m in row["conversations"]]
    tools = json.loads(row.get("tools") or "[]")
    return {"messages": messages, **({"tools": [{"type": "function", "function": t} for t in tools]} if tools else {})}


def parts(row):
    messages = []
    for m in row["messages"]:
        of = lambda kind: [p["value"] for p in m["content"] if p["type"] == kind]
        out = message(m["role"], "".join(of("text")))
        if of("reasoning"):
            out["reasoning_content"] = "".join(of("reasoning"))
        if of("tool_call"):
            out["tool_calls"] = [call(t) for t in of("tool_call")]
        messages.append(out)
    return {"messages": messages, **({"tools": json.loads(row["tools"])} if row.get("tools") else {})}


ALL, ASSISTANT = {}, {"assistant_only_loss": True}
# File, what makes rows for TRL of its rows, Heddle's own keys, keys of both.
CASES = [("llamafactory/alpaca_en_demo.json", alpaca, {}, [ALL, {"completion_only_loss": False}, ASSISTANT]),
         ("llamafactory/identity.json", alpaca, {}, [ALL]),
         ("torchtune/alpaca_tiny.json", alpaca, {}, [ALL]),
         ("torchtune/alpaca_tiny.json", lambda r: {"text": r["text"]}, {"columns": {"text": "text"}}, [ALL]),
         ("torchtune/chat_tiny.json", sharegpt, {}, [ALL, ASSISTANT]),
         ("torchtune/instruct_tiny.json", lambda r: alpaca({"instruction": r["instruction"], "input": "", "output": r["response"]}), {"columns": {"output": "response"}}, [ALL]),
         ("axolotl/conversation.json", sharegpt, {}, [ALL, ASSISTANT]),
         ("axolotl/conversation.missingturns.json", sharegpt, {}, [ALL, ASSISTANT]),
         ("fastchat/dummy_conversation.json", sharegpt, {}, [ALL, ASSISTANT]),
         ("openai_messages/toy_chat_fine_tuning_first4.jsonl", None, {}, [ALL, ASSISTANT]),
         ("llamafactory/kto_en_demo.json", lambda r: {"messages": r["messages"]}, {"columns": {"messages": "messages"}}, [ALL, ASSISTANT]),
         ("llamafactory/glaive_toolcall_en_demo.json", sharegpt, {}, [ALL, ASSISTANT]),
         ("llamafactory/reason_tool_use_demo_50.jsonl", parts, {}, [ALL, ASSISTANT]),
         ("llamafactory/v1_sft_demo.jsonl", parts, {}, [ASSISTANT]),  # its weights say so themselves
         ("llamafactory/c4_demo.jsonl", None, {}, [ALL]),
         ("gsm8k/test.jsonl", lambda r: {"prompt": r["question"], "completion": r["answer"]}, {"columns": {"prompt": "question", "completion": "answer"}}, [ALL, {"completion_only_loss": False}])]


class Refused(Exception):
    """TRL has no rows of its own here."""


def marked_template(folder):
    path = os.path.join(folder, "marked.jinja")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", newline="") as f:
        return f.read()


def open_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = marked_template(folder) or tokenizer.chat_template
    return tokenizer


def rendered(tokenizer, row):
    """Whether the template takes this row."""
    messages = row.get("messages") or row.get("prompt")
    if not isinstance(messages, list):
        return True
    try:
        tokenizer.apply_chat_template(messages + row.get("completion", []), tools=row.get("tools"), tokenize=False)
    except jinja2.exceptions.TemplateError:
        return False
    return True


def trl_rows(tokenizer, rows, keys, max_length, scratch):
    tiny = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))
    settings = SFTConfig(output_dir=scratch, max_length=max_length, packing=False, use_cpu=True, report_to="none", disable_tqdm=True, **keys)
    try:
        prepared = SFTTrainer(model=tiny, args=settings, train_dataset=Dataset.from_list(rows, on_mixed_types="use_json"), processing_class=tokenizer).train_dataset
    except (RuntimeError, ValueError, TypeError) as e:
        raise Refused(str(e).split("\n")[0][:120])
    return [(row["input_ids"], row["labels"]) for row in prepared]


def heddle_rows(heddle, folder, path, keys, max_length, scratch):
    run = {"config_name": os.path.join(folder, "config.json"), "tokenizer_name": folder, "train_file": path, "max_length": max_length, "packing": False,
           "output_dir": os.path.join(scratch, "out"), **keys}
    rows = heddle.json("data", write_json(os.path.join(scratch, "run.json"), run))
    return [(row["input_ids"], row["labels"]) for row in rows], [row["source"] for row in rows]


def has_marks(folder):
    template = marked_template(folder) or AutoTokenizer.from_pretrained(folder).chat_template or ""
    return "generation %}" in template.replace("-%}", "%}")


def first_difference(got, sources, want, with_labels):
    if len(got) != len(want):
        return "%d rows, TRL has %d" % (len(got), len(want))
    for (ids, labels), source, (want_ids, want_labels) in zip(got, sources, want):
        for what, a, b in (("ids", ids, want_ids), ("labels", labels[1:], want_labels[1:]))[:2 if with_labels else 1]:
            if a != b:
                at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                return "%s: %s differ at %d: %s, TRL has %s" % (source, what, at, a[at:at + 4], b[at:at + 4])
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--datasets", required=True)
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--max_length", type=int, default=512)
    parser.add_argument("--rows", type=int, help="the first rows of each file alone")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    heddle, differences = Heddle(options.heddle), 0
    for folder in options.models:
        for name, convert, own, all_keys in CASES:
            path = os.path.join(options.datasets, name)
            for keys in all_keys:
                title = "%s %s %s" % (os.path.basename(folder), name, " ".join("%s=%s" % k for k in {**own, **keys}.items()))
                if options.only not in title or not os.path.exists(path):
                    continue
                rows = read(path)[:options.rows]
                with_labels = "assistant_only_loss" not in keys or has_marks(folder)
                with tempfile.TemporaryDirectory() as scratch:
                    try:
                        tokenizer = open_tokenizer(folder)
                        converted = [convert(r) for r in rows] if convert else rows
                        taken = [r for r in converted if rendered(tokenizer, r)]
                        refused = len(converted) - len(taken)
                        if not taken:
                            print("skip", title + ": the template takes no row")
                            continue
                        want = trl_rows(tokenizer, taken, keys, options.max_length, scratch)
                        own_keys = {**own, **({"on_bad_row": "skip"} if refused else {})}
                        sample = write_rows(os.path.join(scratch, "rows.jsonl"), rows) if options.rows else path
                        got, sources = heddle_rows(heddle, folder, sample, {**own_keys, **keys}, options.max_length, scratch)
                        difference = first_difference(got, sources, want, with_labels)
                    except Refused as e:
                        print("skip", title + ": TRL:", e)
                        continue
                    except Difference as e:
                        difference = str(e)
                differences += difference is not None
                print("DIFF" if difference else "same" if with_labels else "ids ", title + ":", difference or "%d rows, %d tokens%s" %
                      (len(got), sum(len(ids) for ids, _ in got), "; %d refused by the template" % refused if refused else ""), flush=True)
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
