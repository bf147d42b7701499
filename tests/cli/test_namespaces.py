"""Jobs of programs that embed Kron, seen from the command line in the same store."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import kron
from kron.cli.main import BAD, GOOD, NO, run
from kron.testing import SimulatedClock

STORE = ["--store", "sqlite:///kron.db"]
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SERVICE = [
    "schedules",
    "upsert",
    "--id",
    "report",
    "--cron",
    "0 0 1 1 *",
    "--set",
    'launcher={"kind": "callback"}',
]


async def embed(path: Path) -> None:
    """Run a scheduler and a runner on one store for an hour of virtual time."""
    clock = SimulatedClock(NOON - timedelta(minutes=30))

    async def work(*_: object) -> None:
        await clock.sleep_until(clock.now() + timedelta(seconds=3))

    scheduler = kron.Scheduler(f"sqlite:///{path}", clock=clock, timezone="UTC")
    await scheduler.initialize([("backup", "0 * * * *", work, timedelta(minutes=5))])
    await clock.advance_to(NOON + timedelta(minutes=30))
    await scheduler.stop()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Fill a store with a scheduler's task and a schedule of the service."""
    monkeypatch.chdir(tmp_path)
    asyncio.run(embed(tmp_path / "kron.db"))
    assert run([*SERVICE, *STORE]) == GOOD
    capsys.readouterr()


@pytest.mark.usefixtures("store")
def test_the_status_of_all_namespaces_has_the_tasks_of_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--all", *STORE]) == GOOD
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["NAMESPACE", "SCHEDULE"]
    assert [row.split()[:2] for row in rows] == [["embed:main", "backup"], ["service", "report"]]
    assert run(["status", "--all", "--json", *STORE]) == GOOD
    spaces = json.loads(capsys.readouterr().out)["namespaces"]
    assert [(each["namespace"], len(each["schedules"])) for each in spaces] == [
        ("embed:main", 1),
        ("service", 1),
    ]


@pytest.mark.usefixtures("store")
def test_runs_and_why_read_the_namespace_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    here = ["--namespace", "embed:main", *STORE]
    assert run(["runs", *here]) == GOOD
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:6] == [
        "2026-06-01T12:00:00Z",
        "backup",
        "SUCCESS",
        "2026-06-01T12:00:00Z",
        "3.0s",
        "started",
    ]
    assert run(["why", "backup", "2026-06-01T12:00:00Z", *here]) == GOOD
    assert capsys.readouterr().out.startswith("backup 2026-06-01T12:00:00Z: executed\n")
    assert run(["status", *here]) == GOOD
    assert "report" not in capsys.readouterr().out


@pytest.mark.usefixtures("store")
def test_an_unknown_schedule_is_looked_for_in_the_other_namespaces(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["why", "backup", *STORE]) == NO
    assert capsys.readouterr().err == (
        'kron: There is no schedule "backup" in the namespace service of the store;'
        " there is one with --namespace embed:main\n"
    )
    assert run(["why", "report", "--namespace", "embed:main", *STORE]) == NO
    assert capsys.readouterr().err.endswith("; there is one with --namespace service\n")
    assert run(["why", "nobody", *STORE]) == NO
    assert capsys.readouterr().err == 'kron: There is no schedule "nobody"\n'


def test_a_krond_that_does_not_run_is_said_with_the_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    socket = tmp_path / "krond.sock"
    assert run(["status", "--server", f"unix:{socket}"]) == BAD
    assert capsys.readouterr().err == (
        f"kron: krond cannot be reached at {socket}: it does not run there; start krond, or name its socket"
        " with --server unix:PATH\n"
    )


@pytest.mark.usefixtures("store")
def test_an_empty_service_hints_at_the_namespaces_that_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schedules", "delete", "report", *STORE]) == GOOD
    capsys.readouterr()
    assert run(["status", *STORE]) == GOOD
    assert capsys.readouterr().out.endswith("; kron status --all shows embed:main\n")


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["runs", "--namespace", "embed:man"], 'Invalid --namespace "embed:man": the store has embed:main'),
        (["status", "--all", "--namespace", "service"], "it cannot be combined with --all"),
        (["status", "--all", "--server", "http://127.0.0.1:1"], "use --server or --store, not both"),
    ],
)  # fmt: skip
def test_a_wrong_namespace_is_named(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, *STORE]) == BAD
    assert error in capsys.readouterr().err
    assert run(["status", "--all", "--server", "http://127.0.0.1:1"]) == BAD
    assert "a server has one namespace; use --store" in capsys.readouterr().err
