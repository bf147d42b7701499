"""`kron prune`: counts, prunes, and says so when there is nothing to prune."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, run
from kron.clocks.system import SystemClock
from kron.core.time.instant import milliseconds_of
from kron.stores.sqlite.store import SqliteStore
from kron.testing.contract.sample import a_job, a_run, an_end, written

DAYS_AGO = 200


async def old_runs(path: Path, count: int, namespace: str = "service") -> None:
    """Give a store a schedule with runs that ended long ago."""
    at = milliseconds_of(SystemClock().now() - timedelta(days=DAYS_AGO))
    store = SqliteStore(str(path))
    ownership = await store.acquire(namespace, "test")
    await store.put(namespace, created=[a_job()], changed=[], now=at)
    runs = [an_end(a_run(nominal_time=at // 1000 + number)) for number in range(count)]
    await written(store, ownership, *runs, now=at + 1_000 * count)
    await store.release(ownership)
    await store.close()


def test_a_dry_run_counts_and_pruning_removes_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kron.db"
    asyncio.run(old_runs(path, 12))
    words = ["prune", "--store", f"sqlite:///{path}", "--keep-runs", "5"]
    assert run([*words, "--dry-run"]) == GOOD
    assert capsys.readouterr().out == "would prune 7 runs\n"
    assert run([*words, "--json"]) == GOOD
    document = json.loads(capsys.readouterr().out)
    assert (document["dry_run"], document["records"], document["runs"]) == (False, 7, 7)
    assert run(words) == GOOD
    assert "nothing to prune: no run ended more than 90 days ago" in capsys.readouterr().out


def test_kept_for_ever_nothing_is_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kron.db"
    asyncio.run(old_runs(path, 3))
    assert run(["prune", "--store", f"sqlite:///{path}", "--keep-days", "forever"]) == GOOD
    assert "runs are kept forever" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--keep-days", "-1"], ["--keep-runs", "x"], ["--store", "sqlite:///no.db"]]
)
def test_invalid_options_end_with_code_2(words: list[str], tmp_path: Path) -> None:
    assert run(["prune", *words]) == BAD


def test_another_namespace_of_the_store_is_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kron.db"
    asyncio.run(old_runs(path, 12, "operator"))
    words = ["prune", "--store", f"sqlite:///{path}", "--keep-runs", "5", "--namespace"]
    assert run([*words, "operator"]) == GOOD
    assert capsys.readouterr().out == "pruned 7 runs\n"
    assert run([*words, "operators"]) == BAD
    assert "the store has operator; did you mean" in capsys.readouterr().err
