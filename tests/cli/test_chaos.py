"""`kron simulate --chaos`: the same story for the same seed, lawful, readable, strict about options."""

import json
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, run

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


def test_jobs_live_through_chaos(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", jobs, "--chaos", "--seed", "3", "--years", "0.05"]) == GOOD
    captured = capsys.readouterr()
    assert captured.out.startswith("seed 3, 0.05 years: 3 jobs, ")
    assert "\nlawful: " in captured.out
    assert captured.err == ""


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
