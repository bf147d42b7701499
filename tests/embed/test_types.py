"""A type checker sees the embedding API: right programs pass `mypy --strict`, wrong ones are refused."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import ROOT, blocks_of

pytestmark = pytest.mark.slow

PROGRAM = """
from datetime import UTC, datetime, timedelta
from typing import assert_type

import kron

runner = kron.Runner("memory://", max_threads=4)


@runner.job("*/5 * * * *", window="10m", distribution=kron.SkewLate(shape=3), deadline=timedelta(minutes=1))
def blocking() -> int:
    return 1


@runner.job(
    kron.Schedule("0 9 * * mon-fri", "Europe/Berlin"),
    identity="prod/report",
    window=kron.Window("around", "30m"),
    constraints=kron.Constraints(avoid=kron.ConstraintRule(hours=[14], dates="2026-12-24..2026-12-26")),
    overlap=kron.Overlap.QUEUE,
    start_at=datetime(2026, 1, 1, tzinfo=UTC),
)
async def waiting(run: kron.Run) -> None:
    assert_type(run.nominal_time, datetime)


assert_type(blocking(), int)
with runner:
    assert_type(runner.wait(runner.runs("blocking")), list[kron.Run])
    assert_type(runner.wait(runner.jobs())[0].next_start_at, datetime | None)
    assert_type(runner.wait(runner.why("blocking")), kron.Why)
runner.start()
runner.stop()


async def program() -> None:
    async with runner as started:
        assert_type(started, kron.Runner)
        await runner.add(kron.Job(identity="typed", schedule=kron.Schedule("@daily")), waiting)
        assert_type(await runner.run_now("typed"), str)
"""
WRONG = [
    ('runner.job("@daily", deadline=5)(print)', "arg-type"),
    ('runner.job("@daily", windwo="1h")(print)', "call-arg"),
    ('runner.job("@daily")(5)', "type-var"),
    ('kron.Job(identity="a", schedule="@daily")', "arg-type"),
    ("kron.ConstraintRule(hour=[9])", "call-arg"),
    ('kron.Window("after", 60)', "arg-type"),
]


def mypy(folder: Path, text: str) -> list[tuple[int, str]]:
    """Return the line and the code of every error."""
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    options = ["--strict", "--config-file", "", "--cache-dir", str(folder / "cache")]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found = re.findall(r"^\S*program\.py:(\d+): error: .*\[(.*)\]$", done.stdout, re.MULTILINE)
    assert bool(found) == bool(done.returncode), done.stdout
    return [(int(line), code) for line, code in found]


def test_right_programs_pass_and_each_mistake_is_found(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "test-your-schedules.md").read_text(encoding="utf-8")
    (shop,) = (block.text for block in blocks_of(page) if block.file == "shop.py")
    assert mypy(tmp_path, shop) == []
    assert mypy(tmp_path, PROGRAM) == []
    lines = PROGRAM.count("\n")
    text = PROGRAM + "\n".join(line for line, _ in WRONG)
    assert mypy(tmp_path, text) == [(lines + number, code) for number, (_, code) in enumerate(WRONG, 1)]
