"""Measurements in new processes, isolated from the memory, caches and threads of others."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
# Far longer than any measurement; one that hangs must not stop the benchmark.
MAX_SECONDS = 600


class ChildError(Exception):
    """A measurement process failed."""


def ask(module: str, *words: object, most: float = MAX_SECONDS) -> dict[str, float]:
    """Run a module of the benchmark in a new process and return the figures it prints."""
    command = [sys.executable, "-m", f"bench.{module}", *map(str, words)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=most)
    if done.returncode:
        raise ChildError((done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1])
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def answer(questions: Mapping[str, Callable[..., Mapping[str, float]]]) -> None:
    """Run as such a process: the first argument names the measurement, the others are its arguments."""
    _, name, *words = sys.argv
    print(json.dumps(questions[name](*words)))
