"""The page of runs searches a status in a bounded number of runs, and leads on to older ones."""

from pathlib import Path

from kron.clocks.system import SystemClock
from kron.core.job.outcome import Reason
from kron.core.plan.record import RunRecord, RunStatus, key_of
from kron.core.plan.step import Change
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.web.schedule_pages import Pages
from kron.stores.sqlite.store import SqliteStore
from tests.service.test_worker import SECONDLY

BASE = 1_700_000_000


async def test_an_old_run_with_a_rare_status_is_found_by_following_the_pages(
    tmp_path: Path,
) -> None:
    store = SqliteStore(str(tmp_path / "kron.db"))
    registrar = Registrar(store, SystemClock())
    await registrar.upsert_schedule({**SECONDLY, "launcher": {"kind": "log", "message": "x"}})
    (state,) = await store.cases(NAMESPACE)
    name = state.job.identity
    statuses = [RunStatus.CANCELLED, *[RunStatus.SUCCESS] * 45, RunStatus.STARTED]
    runs = [
        RunRecord(
            key=key_of(name, BASE + at), identity=name, nominal_time=BASE + at, fire_time=1000 * (BASE + at),
            status=status, reason=Reason.DUE, created_at=1000 * (BASE + at), epoch=state.job.epoch,
            is_open=int(status is RunStatus.STARTED),
        )
        for at, status in enumerate(statuses)
    ]  # fmt: skip
    ownership = await store.acquire(NAMESPACE, "test")
    change = Change(state.job._replace(revision=state.job.revision + 1), state.job.revision)
    change.inserts = runs
    await store.settle(ownership, [change], now=1000 * BASE)
    pages = Pages(registrar)
    pages.searched = 5
    cursor, seen, steps = None, [], 0
    while True:
        entries, cursor = await pages.runs(status=RunStatus.CANCELLED, before=cursor)
        seen += entries
        steps += 1
        if cursor is None:
            break
    assert [entry.at for entry in seen] == ["2023-11-14T22:13:20Z"]
    assert steps == 3
    (started,), cursor = await pages.runs(status=RunStatus.STARTED)
    assert (started.mark.word, cursor) == ("running", None)
    await store.close()
