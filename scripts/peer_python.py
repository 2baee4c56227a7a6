"""Starts a script again in the environment of scripts/peer_environment where the packages it needs are missing."""
import importlib.util
import os
import subprocess
import sys


def require(*packages):
    if all(importlib.util.find_spec(p) for p in packages):
        return
    if os.environ.get("HEDDLE_IN_PEER_ENVIRONMENT"):
        raise SystemExit("scripts/peer_environment has no %s" % " or no ".join(packages))
    here = os.path.dirname(os.path.abspath(__file__))
    python = subprocess.run([os.path.join(here, "peer_environment")], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    os.environ["HEDDLE_IN_PEER_ENVIRONMENT"] = "1"
    os.execv(python, [python] + sys.argv)
