#!/usr/bin/env python3
"""Compares `heddle render` with jinja2 in the environment that transformers gives chat templates, on many small templates.

    compare_jinja.py [--heddle PROGRAM] [--expressions N] [--random N] [--seed S] [--show N] [--only REGEX]

The cases are in jinja_cases.py; what is right comes from jinja2 when this runs. Texts must be equal to the byte. Where jinja2 fails we must fail, and where it
does so with a message of its own (undefined values, refused access, raise_exception, syntax), how many of our messages carry it is reported. Left out: texts with
addresses in them, and whole numbers beyond 64 bits, which we refuse. Exit code 1 if anything differs.
"""
import argparse
import copy
import json
import os
import random
import re
import sys
import tempfile
import time

import peer_python

peer_python.require("transformers", "jinja2")

import subprocess  # noqa: E402

import jinja2  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402

import jinja_cases  # noqa: E402
from heddle_program import DEFAULT_PROGRAM  # noqa: E402

EPOCH = 1752584523
MESSAGES = [{"role": "user", "content": "Hi"}]
PER_TEMPLATE = 100
ADDRESS = re.compile(r"0x[0-9a-f]{6,}|<generator|<function|<built-in|<bound method|<class|<jinja2|TemplateReference|iterator object|<transformers", re.IGNORECASE)
OWN_MESSAGES = (jinja2.TemplateError,)


def oracle(environment, template, variables):
    """("text", text), ("error", message, is it Jinja's own) or, where it does not compile, ("syntax", message, ...)."""
    try:
        compiled = environment.from_string(template)
    except Exception as e:
        return "syntax", str(e), isinstance(e, OWN_MESSAGES)
    try:
        text = compiled.render(messages=MESSAGES, tools=None, documents=None, add_generation_prompt=False, **copy.deepcopy(variables))  # a filter may change them
        text.encode()
        return "text", text
    except RecursionError:
        return "error", "recursion", False
    except Exception as e:  # whatever a template can raise
        return "error", str(e), isinstance(e, OWN_MESSAGES)


class Program:
    def __init__(self, path, folder):
        self.path, self.folder, self.count = path, folder, 0
        self.environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "TZ": "UTC"}

    def render(self, template, rows):
        """One answer for each row, or the one error of a template that cannot be read."""
        self.count += 1
        folder = os.path.join(self.folder, str(self.count))
        os.mkdir(folder)
        with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8", newline="") as f:
            f.write(template)
        file = os.path.join(folder, "rows.jsonl")
        with open(file, "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"messages": MESSAGES, "chat_template_kwargs": row}) + "\n" for row in rows)
        done = subprocess.run([self.path, "render", folder, file, "--json"], capture_output=True, text=True, env=self.environment)
        if done.returncode not in (0, 1):
            raise SystemExit("heddle ended with %d on %r: %s" % (done.returncode, template, done.stderr[-500:]))
        if not done.stdout.strip():
            return [{"error": done.stderr.strip()}] * len(rows)
        return json.loads(done.stdout)


class Comparison:
    def __init__(self, show):
        self.show, self.texts, self.errors, self.messages, self.own_messages, self.left_out, self.wrong, self.other_messages = show, 0, 0, 0, 0, 0, [], []

    def add(self, case, want, got):
        if want[0] == "text" and ADDRESS.search(want[1]):
            self.left_out += 1
        elif "beyond 64 bits" in got.get("error", ""):
            self.left_out += 1
        elif want[0] == "text":
            self.texts += 1
            if got.get("text") != want[1]:
                self.wrong.append((case, want[1], got))
        else:
            self.errors += 1
            if "error" not in got:
                self.wrong.append((case, want, got))
            elif want[2]:
                self.own_messages += 1
                self.messages += want[1] in got["error"]
                if want[1] not in got["error"]:
                    self.other_messages.append((case, want[1], got["error"]))

    def report(self):
        for case, want, got in self.wrong[:self.show]:
            print("differs: %s\n    want %.300r\n    got  %.300r" % (case, want, got))
        for case, want, got in self.other_messages[:self.show]:
            print("message: %s\n    want %.200r\n    got  %.200r" % (case, want, got))
        print("%d cases: %d texts and %d errors agree, %d differ; %d of %d messages of Jinja's own are the same; %d left out"
              % (self.texts + self.errors, self.texts + self.errors - len(self.wrong) - self.errors, self.errors, len(self.wrong), self.messages, self.own_messages, self.left_out))
        return 1 if self.wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heddle", default=DEFAULT_PROGRAM)
    parser.add_argument("--expressions", type=int, default=5000, help="how many of them, drawn by chance; 0: all (some 30,000)")
    parser.add_argument("--random", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--only", default="")
    options = parser.parse_args()

    class Clock(chat_template_utils.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(EPOCH, tz)

    os.environ["TZ"] = "UTC"
    time.tzset()
    chat_template_utils.datetime = Clock
    variables = jinja_cases.rows_variables()
    comparison = Comparison(options.show)
    expressions = [e for e in dict.fromkeys(jinja_cases.expressions()) if re.search(options.only, e)]
    templates = [t for t in jinja_cases.templates(options.random, options.seed) if re.search(options.only, t)]
    random.Random(options.seed).shuffle(expressions)
    expressions = expressions if options.expressions == 0 else expressions[:options.expressions]
    with tempfile.TemporaryDirectory() as folder:
        program = Program(options.heddle, folder)
        # Expressions: many in one template, of which each row takes one; what cannot be compiled goes alone.
        environment = chat_template_utils._compile_jinja_template("").environment
        wants = {e: oracle(environment, "{{ %s }}" % e, variables) for e in expressions}
        together = [e for e in wants if wants[e][0] != "syntax"]
        templates += ["{{ %s }}" % e for e in wants if wants[e][0] == "syntax"]
        for first in range(0, len(together), PER_TEMPLATE):
            part = together[first:first + PER_TEMPLATE]
            template = "".join("{%% if case == %d %%}{{ %s }}{%% endif %%}" % (i, e) for i, e in enumerate(part))
            answers = program.render(template, [{**variables, "case": i} for i in range(len(part))])
            for e, answer in zip(part, answers):
                comparison.add(e, wants[e], answer)
        for template in templates:
            comparison.add(template, oracle(environment, template, variables), program.render(template, [variables])[0])
    sys.exit(comparison.report())


main()
