"""`kron simulate --chaos`: the same story for the same seed, lawful, readable, strict about options."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kron
from kron.cli.main import BAD, GOOD, NO, run

JOBS = """
- {identity: backup, schedule: "0 3 * * *", timezone: Europe/Berlin, window: {mode: after, duration: 1h}}
- {identity: report, schedule: "0 * * * *", policy: {concurrency: queue, deadline: 2h, jitter_ms: 5000}}
- {identity: never, schedule: "0 12 * * *", constraints: {only: {hours: [3]}}}
- {identity: asleep, schedule: "* * * * *", policy: {suspend: true}}
"""


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS, encoding="utf-8")
    return str(file)


@pytest.mark.slow
def test_jobs_live_through_chaos(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", jobs, "--chaos", "--seed", "3", "--years", "0.05"]) == GOOD
    captured = capsys.readouterr()
    assert captured.out.startswith("seed 3, 0.05 years: 3 jobs, ")
    assert "\nno violations: " in captured.out
    assert captured.err == ""


@pytest.mark.slow
def test_the_same_seed_tells_the_same_story(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for seed in ("5", "5", "6"):
        assert run(["simulate", jobs, "--chaos", "--seed", seed, "--years", "0.03", "--json"]) == GOOD
        told.append(json.loads(capsys.readouterr().out))
    assert told[0] == told[1]
    assert told[0]["jobs"] != told[2]["jobs"]
    assert told[0]["violations"] == []
    assert set(told[0]["jobs"]) == {"backup", "report", "never"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seed", "1"], "--seed"),
        (["--years", "1"], "--years"),
        (["--chaos", "--years", "0"], "--years"),
        (["--chaos", "--days", "3"], "--days"),
        (["--chaos", "--to", "2027-01-01"], "--to"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    jobs: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", jobs, *options]) == BAD
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_violation_exits_with_one_and_prints_its_seed(jobs: str, tmp_path: Path) -> None:
    """Run a copy of the source with a fault put in: periods go by without a record."""
    copy = tmp_path / "src"
    shutil.copytree(Path(kron.__file__).parent, copy / "kron", ignore=shutil.ignore_patterns("__pycache__"))
    path, old, new = (
        "core/plan/backlog.py",
        "        _plan_period(step, nominal_time, missed)\n",
        "        pass\n",
    )
    file = copy / "kron" / path
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")
    command = "import sys; from kron.cli.main import run; sys.exit(run(sys.argv[1:]))"
    options = ["simulate", jobs, "--chaos", "--seed", "3", "--years", "0.02"]
    done = subprocess.run(
        [sys.executable, "-c", command, *options],
        env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == NO, done.stderr
    assert "\nVIOLATION, seed 3\n" in done.stdout
    assert "has 0 records" in done.stdout
