"""Heddle as the comparing scripts use it: as a program, through the files that it reads and the JSON that it prints."""
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEFAULT_PROGRAM = os.path.join(ROOT, "build", "release", "src", "heddle")


class Difference(Exception):
    """What two programs disagree on, or what one of them refused."""


class Heddle:
    def __init__(self, program, environment=None):
        self.program = program
        self.environment = {**os.environ, **(environment or {})}

    def run(self, *arguments):
        done = subprocess.run([self.program] + [str(a) for a in arguments], capture_output=True, text=True, env=self.environment)
        if done.returncode:
            raise Difference("heddle %s: %s" % (arguments[0], (done.stderr.strip().splitlines() or ["exit code %d" % done.returncode])[-1]))
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))

    def error(self, *arguments):
        """The error that these arguments give."""
        try:
            self.run(*arguments)
        except Difference as e:
            return str(e)
        raise Difference("heddle %s: no error" % " ".join(map(str, arguments)))


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f)
    return path


def read_json(path):
    with open(path) as f:
        return json.load(f)


def read_rows(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def write_rows(path, rows):
    with open(path, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    return path


# A training whose steps change nothing: step k's loss is that of row k.
STILL = {"learning_rate": 0.0, "lr_scheduler_type": "constant", "weight_decay": 0.0, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1,
         "packing": False, "shuffle": False, "attention_dropout": 0.0, "hidden_dropout": 0.0, "embedding_dropout": 0.0,
         "resume_from_checkpoint": "false"}


def row_losses(heddle, model, rows, scratch):
    """Mean loss and number of targets of each row, from one process."""
    out = os.path.join(scratch, "still")
    run = {**STILL, "model_name_or_path": model, "train_file": write_rows(os.path.join(scratch, "still.jsonl"), rows), "output_dir": out,
           "max_length": max(len(row["input_ids"]) for row in rows), "max_steps": len(rows)}
    heddle.run("train", write_json(os.path.join(scratch, "still.json"), run))
    return [(step["loss"], step["num_supervised_tokens"]) for step in read_rows(os.path.join(out, "metrics.jsonl")) if "loss" in step]


def rows_of_each_id(ids, vocabulary):
    """Rows whose losses are the negative log-probabilities of every id at the last place of `ids`: the logits but for what
    softmax does not see, a number added to all."""
    return [{"input_ids": ids, "labels": [-100] * (len(ids) - 1) + [token]} for token in range(vocabulary)]


def write_between_marks(page, name, text):
    """Replaces what stands between the marks of that name in a page of docs/."""
    path = os.path.join(ROOT, "docs", page)
    begin, end = "<!-- %s: begin -->" % name, "<!-- %s: end -->" % name
    with open(path) as f:
        before, found, rest = f.read().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit("%s has no marks %s" % (path, begin))
    with open(path, "w") as f:
        f.write(before + begin + "\n\n" + text + "\n\n" + end + after)
