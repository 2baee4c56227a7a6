"""llm.c (github.com/karpathy/llm.c) as a peer: built from a folder that the user has, with its own flags; nothing of it is kept here."""
import array
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = ("-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w")  # its Makefile's


def build(source, folder):
    """Path of the program; raises RuntimeError with the compiler's first words."""
    program = os.path.join(folder, "llm_c_train")
    compiler = os.environ.get("CC", "cc")
    command = [compiler, *FLAGS, "-I", os.path.abspath(source), os.path.join(HERE, "llm_c_train.c"), "-o", program, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("llm.c does not build from %s: %s" % (source, done.stderr.strip()[:300]))
    return program


def prepare(config, rows_path, python, folder):
    """A checkpoint with random weights and the rows' ids, as the program reads them."""
    checkpoint, ids = os.path.join(folder, "llm_c.bin"), os.path.join(folder, "llm_c_rows.bin")
    if not os.path.exists(checkpoint):
        subprocess.run([python, os.path.join(HERE, "llm_c_checkpoint.py"), json.dumps(config), checkpoint], check=True)
        with open(rows_path) as rows, open(ids, "wb") as out:
            for line in rows:
                out.write(array.array("i", json.loads(line)["input_ids"]).tobytes())
    return checkpoint, ids


def command(program, checkpoint, ids, batch, length, steps, recipe):
    return [program, checkpoint, ids, str(batch), str(length), str(steps),
            *(repr(recipe[key]) for key in ("learning_rate", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay"))]
