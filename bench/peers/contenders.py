"""How each program is run for a few training steps: a child process, its threads held to the same cores, its time and peak memory."""
import glob
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass

import llm_c
from workloads import RECIPE, SEQUENCE

HERE = os.path.dirname(os.path.abspath(__file__))
TCMALLOC = "/usr/lib/*/libtcmalloc_minimal.so.4"


@dataclass(frozen=True)
class Contender:
    name: str
    label: str
    precision: str
    options: tuple = ()  # of torch_train.py
    preload: str = ""
    is_heddle: bool = False
    only: str = ""  # the one work that it knows
    on_nvme: tuple = ()  # what lies on disk: keys of the run file


@dataclass(frozen=True)
class Setup:
    heddle: str
    python: str
    threads: int
    timeout: float
    llm_c: str = ""  # its program


class Failed(Exception):
    pass


def contenders(skip_compile, skip_bf16_peer, with_transformers, with_llm_c):
    """Heddle first; then PyTorch as it stands, compiled, and with tcmalloc for its allocations where that is installed; then llm.c."""
    found = [Contender("heddle", "Heddle", "fp32", is_heddle=True), Contender("heddle-bf16", "Heddle", "bf16", is_heddle=True),
             Contender("heddle-gradients-nvme", "Heddle, gradients and activations on NVMe", "fp32", is_heddle=True,
                       on_nvme=("offload_gradients", "offload_activations")),
             Contender("heddle-nvme", "Heddle, states on NVMe", "fp32", is_heddle=True, on_nvme=("offload_optimizer", "offload_activations")),
             Contender("heddle-all-nvme", "Heddle, all on NVMe", "fp32", is_heddle=True,
                       on_nvme=("offload_optimizer", "offload_gradients", "offload_param", "offload_activations")),
             Contender("torch", "PyTorch, eager", "fp32")]
    if with_transformers:
        found.append(Contender("transformers", "transformers, eager", "fp32", ("--transformers",)))
    if not skip_compile:
        found.append(Contender("torch-compile", "PyTorch, compiled", "fp32", ("--compile",)))
    tcmalloc = next(iter(glob.glob(TCMALLOC)), "")
    if tcmalloc:
        found += [Contender(c.name + "-tcmalloc", c.label + ", tcmalloc", c.precision, c.options, tcmalloc) for c in found if not c.is_heddle]
    if not skip_bf16_peer:
        found.append(Contender("torch-bf16", "PyTorch, eager, autocast", "bf16", ("--bf16",)))
    if with_llm_c:
        found.append(Contender("llm.c", "llm.c", "fp32", only="gpt2-124m"))
    return found


def busy_seconds():
    """Core seconds that the whole machine has worked since it started."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = (int(v) for v in f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def run_child(command, setup, cwd, preload=""):
    """Standard output of a command that must succeed, its peak resident bytes, and how many cores other programs used meanwhile."""
    cores = sorted(os.sched_getaffinity(0))[: setup.threads]
    environment = {**os.environ, "OMP_NUM_THREADS": str(setup.threads), "MKL_NUM_THREADS": str(setup.threads)}
    if preload:
        environment["LD_PRELOAD"] = preload
    with open(os.path.join(cwd, "stdout"), "w+") as out, open(os.path.join(cwd, "stderr"), "w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, cwd=cwd, env=environment, start_new_session=True,
                                 preexec_fn=lambda: os.sched_setaffinity(0, cores))
        start, busy_before = time.monotonic(), busy_seconds()
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > start + setup.timeout:
                os.killpg(child.pid, signal.SIGKILL)
                os.wait4(child.pid, 0)
                raise Failed("no result after %.0f s" % setup.timeout)
            time.sleep(0.05)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            raise Failed((err.read().strip().splitlines() or ["exit code %d" % child.returncode])[-1][:300])
        others = busy_seconds() - busy_before - usage.ru_utime - usage.ru_stime
        return out.read(), {"peak_rss": usage.ru_maxrss * 1024, "busy_elsewhere": max(0.0, round(others / (time.monotonic() - start), 2))}


def run_heddle(contender, workload, folder, steps, setup):
    output = os.path.join(folder, "out")
    run = {"config_name": os.path.join(folder, "config.json"), "tokenizer_name": "bytes", "train_file": os.path.join(folder, "rows.jsonl"), "packing": False,
           "shuffle": False, "max_length": SEQUENCE, "per_device_train_batch_size": workload["rows"], "max_steps": steps, "lr_scheduler_type": "constant",
           "threads": setup.threads, "seed": 1, "output_dir": output, "resume_from_checkpoint": "false", **RECIPE}
    if contender.precision != "fp32":
        run[contender.precision] = True
    if contender.on_nvme:
        os.makedirs(os.path.join(folder, "nvme"), exist_ok=True)
        run.update({key: "nvme" for key in contender.on_nvme}, nvme_path=os.path.join(folder, "nvme"))
    with open(os.path.join(folder, "run.json"), "w") as f:
        json.dump(run, f)
    _, process = run_child([setup.heddle, "train", os.path.join(folder, "run.json")], setup, folder)
    with open(os.path.join(output, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    if any(m["num_tokens"] != workload["rows"] * SEQUENCE for m in lines) or len(lines) != steps:
        raise Failed("metrics.jsonl: expected %d steps of %d tokens" % (steps, workload["rows"] * SEQUENCE))
    with open(os.path.join(output, "plan.json")) as f:
        plan = json.load(f)
    return {"seconds": [m["step_time"] for m in lines], "losses": [m["loss"] for m in lines], "num_parameters": plan["num_parameters"],
            "planned": sum(t["peak"] for tier, t in plan["ranks"][0]["tiers"].items() if tier != "nvme"), **process}


def run_torch(contender, workload, folder, steps, setup):
    command = [setup.python, os.path.join(HERE, "torch_train.py"), "--config", os.path.join(folder, "config.json"), "--rows", os.path.join(folder, "rows.jsonl"),
               "--recipe", json.dumps(RECIPE), "--batch", str(workload["rows"]), "--steps", str(steps), "--threads", str(setup.threads), *contender.options]
    printed, process = run_child(command, setup, folder, contender.preload)
    return {**json.loads(printed.strip().splitlines()[-1]), **process}


def run_llm_c(workload, folder, steps, setup):
    checkpoint, ids = llm_c.prepare(workload["config"], os.path.join(folder, "rows.jsonl"), setup.python, folder)
    printed, process = run_child(llm_c.command(setup.llm_c, checkpoint, ids, workload["rows"], SEQUENCE, steps, RECIPE), setup, folder)
    return {**json.loads(printed.strip().splitlines()[-1]), **process}


def measure(contender, workload, folder, steps, setup):
    """Seconds and loss of each step, number of parameters, peak resident bytes, cores that others used; Heddle's also with the planned bytes."""
    if contender.name == "llm.c":
        return run_llm_c(workload, folder, steps, setup)
    return (run_heddle if contender.is_heddle else run_torch)(contender, workload, folder, steps, setup)
