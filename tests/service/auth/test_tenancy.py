"""Tenancy: schedules of other tenants look as if they did not exist, and every change is audited."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.query import AuditFilter, JobFilter, RunSpan
from kron.core.plan.record import NoticeEvent, NoticeRecord, RangeRecord, ReopenedRecord
from kron.core.plan.step import Change, Rewind
from kron.core.workflow import WorkflowRecord
from kron.fronts.service.auth.principal import (
    ANONYMOUS,
    EVERYTHING,
    PROGRAM,
    UNRESTRICTED,
    Caller,
    TokenScope,
    acting_as,
    current_actor,
)
from kron.fronts.service.auth.tenancy import TenantStore, TenantWorkflows
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import InvalidScheduleError, UnknownScheduleError
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.runs import latest_page, run_now, runs_page, why
from kron.launchers.workflow import WorkflowSettings
from kron.stores.sqlite.store import SqliteStore
from kron.stores.sqlite.workflow import SqliteWorkflows
from kron.testing import SimulatedClock

RIGHTS = frozenset({TokenScope.READ, TokenScope.WRITE, TokenScope.RUN})
ANN, BOB = Caller("ann", RIGHTS, ("ann",)), Caller("bob", RIGHTS, ("bob", "team"))
TEAM = Caller("tim", RIGHTS, ("tim", "team"))
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def a_schedule(schedule_id: str | None = "ann/daily", **fields: object) -> Document:
    document: Document = {"schedule_id": schedule_id, "cron_expr": "0 9 * * *", "timezone": "UTC"}
    document |= {"launcher": {"kind": "callback"}, **fields}
    return {name: value for name, value in document.items() if value is not None}


@pytest.fixture
async def registrar() -> AsyncIterator[Registrar]:
    store = SqliteStore()
    yield Registrar(store, SimulatedClock(NOON))
    await store.close()


async def names(registrar: Registrar, caller: Caller) -> list[object]:
    with acting_as(caller):
        return [found["schedule_id"] for found in await registrar.list_schedules(JobFilter())]


async def test_a_caller_sees_their_own_and_their_groups(registrar: Registrar) -> None:
    with acting_as(ANN):
        await registrar.upsert_schedule(a_schedule())
    with acting_as(BOB):
        await registrar.upsert_schedule(a_schedule("bob/weekly"))
        await registrar.upsert_schedule(a_schedule("team/monthly", user_id="team"))
    await registrar.upsert_schedule(a_schedule("nobodys"))
    assert await names(registrar, ANN) == ["ann/daily"]
    assert await names(registrar, BOB) == ["bob/weekly", "team/monthly"]
    assert await names(registrar, TEAM) == ["team/monthly"]
    assert await names(registrar, ANONYMOUS) == []
    everything = ["ann/daily", "bob/weekly", "nobodys", "team/monthly"]
    assert [found["schedule_id"] for found in await registrar.list_schedules(JobFilter())] == everything


async def test_a_schedule_without_a_name_gets_one_of_its_owners(registrar: Registrar) -> None:
    with acting_as(ANN):
        receipt = await registrar.upsert_schedule(a_schedule(None))
    assert str(receipt["schedule_id"]).startswith("ann/")


@pytest.mark.parametrize("name", ["bob/weekly", "bob/no-such", "plain"])
async def test_names_of_others_and_names_that_do_not_exist_answer_alike(
    registrar: Registrar, name: str
) -> None:
    with acting_as(BOB):
        await registrar.upsert_schedule(a_schedule("bob/weekly"))
        run = await run_now(registrar, "bob/weekly")
    refusals = []
    with acting_as(ANN):
        for call in (
            registrar.get_schedule(name),
            registrar.pause_schedule(name, True),
            registrar.delete_schedule(name),
            registrar.preview_resume(name),
            run_now(registrar, name),
            runs_page(registrar, name, limit=10),
            why(registrar, name, "2026-06-01T09:00:00Z"),
        ):
            with pytest.raises(UnknownScheduleError) as refusal:
                await call
            refusals.append(str(refusal.value))
        with pytest.raises(InvalidScheduleError, match='must start with "ann/"'):
            await registrar.upsert_schedule(a_schedule(name))
        assert await latest_page(registrar, limit=10) == ([], None)
        assert await registrar.store.find_runs(NAMESPACE, [str(run["idempotency_key"])]) == []
        assert await registrar.store.attempts(NAMESPACE, str(run["idempotency_key"])) == []
        assert await registrar.store.ranges(NAMESPACE, name) == []
        assert await registrar.store.epochs(NAMESPACE, name) == []
    assert refusals == [f'There is no schedule "{name}"'] * 7


async def test_a_schedule_cannot_be_given_to_another_tenant(registrar: Registrar) -> None:
    with acting_as(ANN):
        with pytest.raises(InvalidScheduleError, match="user_id"):
            await registrar.upsert_schedule(a_schedule("bob/gift", user_id="bob"))
        await registrar.upsert_schedule(a_schedule())
        with pytest.raises(InvalidScheduleError, match="user_id"):
            await registrar.upsert_schedule(a_schedule(user_id="bob"))
    assert await names(registrar, BOB) == []


async def test_a_schedule_that_an_admin_creates_for_a_user_is_theirs(registrar: Registrar) -> None:
    await registrar.upsert_schedule(a_schedule("old-name", user_id="ann"))
    with acting_as(ANN):
        await registrar.pause_schedule("old-name", True)
        await registrar.upsert_schedule(a_schedule("old-name", cron_expr="0 10 * * *"))
        assert (await registrar.get_schedule("old-name"))["cron_expr"] == "0 10 * * *"


async def test_every_change_is_audited_with_its_caller_and_the_state_before_and_after(
    registrar: Registrar,
) -> None:
    secret = {"kind": "http", "url": "http://localhost:1/x", "headers": {"X-Key": "hunter2hunter2"}}
    with acting_as(ANN, "request-7"):
        await registrar.upsert_schedule(a_schedule(launcher=secret))
        await registrar.upsert_schedule(a_schedule(cron_expr="0 10 * * *", launcher=secret))
        await registrar.pause_schedule("ann/daily", True)
        await registrar.pause_schedule("ann/daily", True)
        await registrar.pause_schedule("ann/daily", False)
        await run_now(registrar, "ann/daily")
        await registrar.delete_schedule("ann/daily")
        audits = await registrar.store.audits(NAMESPACE, AuditFilter())
    records = [audit.record for audit in reversed(audits)]
    actions = [record.action for record in records]
    assert actions == ["create", "edit", "pause", "resume", "run", "delete"]
    assert {(record.who, record.request_id, record.user_id) for record in records} == {
        ("ann", "request-7", "ann")
    }
    before, after = (json.loads(str(text)) for text in (records[1].before, records[1].after))
    assert (before["definition"]["schedule"], after["definition"]["schedule"]) == ("0 9 * * *", "0 10 * * *")
    assert "notify" not in after, "it has none"
    assert records[0].before is None
    assert records[-1].after is None
    assert json.loads(str(records[4].after))["runs"] == 1
    assert "hunter2" not in str(audits)
    with acting_as(BOB):
        assert await registrar.store.audits(NAMESPACE, AuditFilter()) == []


async def test_a_schedule_that_is_made_again_is_on_record_as_new(registrar: Registrar) -> None:
    with acting_as(ANN, "request-8"):
        await registrar.upsert_schedule(a_schedule())
        await registrar.delete_schedule("ann/daily")
        await registrar.upsert_schedule(a_schedule())
        (again, gone, made) = await registrar.store.audits(NAMESPACE, AuditFilter())
    assert [each.record.action for each in (made, gone, again)] == ["create", "delete", "create"]
    assert (again.record.before, json.loads(str(again.record.after))["paused"]) == (None, False)
    assert gone.record.before == again.record.after


async def test_attempts_and_newest_runs_are_shown_to_their_tenant_only(registrar: Registrar) -> None:
    with acting_as(BOB):
        await registrar.upsert_schedule(a_schedule("bob/weekly"))
        key = str((await run_now(registrar, "bob/weekly"))["idempotency_key"])
    (case,) = await registrar.whole.cases(NAMESPACE, ["bob/weekly"])
    (run,) = await registrar.whole.find_runs(NAMESPACE, [key])
    again = Change(
        case.job._replace(revision=case.job.revision + 1),
        case.job.revision,
        updates=[run._replace(attempt=2)],
        attempts=[run],
    )
    await registrar.whole.put(NAMESPACE, created=[], changed=[again], now=registrar.now())
    for caller, attempts, newest in ((BOB, 1, ["bob/weekly"]), (ANN, 0, []), (PROGRAM, 1, ["bob/weekly"])):
        with acting_as(caller):
            await registrar.store.runs(NAMESPACE, "bob/weekly")
            assert len(await registrar.store.attempts(NAMESPACE, key)) == attempts, caller
            assert list(await registrar.store.newest_runs(NAMESPACE, ["bob/weekly"], limit=1)) == newest
    with acting_as(BOB):
        # A key can be computed; only a request that listed the run sees its attempts.
        assert await registrar.store.attempts(NAMESPACE, key) == []


# Every verb that reads, with one schedule and one of its runs; verbs without a name read all.
Ask = Callable[[TenantStore, str, str], Awaitable[Sized | int]]
ALWAYS = RunSpan(0, 1 << 42, 1 << 42, 1 << 42)
READS: dict[str, Ask] = {
    "cases": lambda store, name, _: store.cases(NAMESPACE, [name]),
    "find_jobs": lambda store, name, _: store.find_jobs(NAMESPACE, JobFilter(names=[name])),
    "count_jobs": lambda store, name, _: store.count_jobs(NAMESPACE, JobFilter(names=[name])),
    "group_jobs": lambda store, name, _: store.group_jobs(NAMESPACE, JobFilter(names=[name]), limit=1),
    "count_made": lambda store, _name, _key: store.count_made(NAMESPACE, JobFilter(), ALWAYS),
    "tally_runs": lambda store, _name, _key: store.tally_runs(NAMESPACE, JobFilter(), ALWAYS),
    "runs": lambda store, name, _: store.runs(NAMESPACE, name),
    "find_runs": lambda store, _, key: store.find_runs(NAMESPACE, [key]),
    "latest_runs": lambda store, _name, _key: store.latest_runs(NAMESPACE),
    "newest_runs": lambda store, name, _: store.newest_runs(NAMESPACE, [name], limit=1),
    "run_counts": lambda store, name, _: store.run_counts(NAMESPACE, name, bounds=[0, 1 << 40]),
    "ranges": lambda store, name, _: store.ranges(NAMESPACE, name),
    "epochs": lambda store, name, _: store.epochs(NAMESPACE, name),
    "attempts": lambda store, _, key: store.attempts(NAMESPACE, key),
    "reopened": lambda store, name, _: store.reopened(NAMESPACE, name, at=0),
    "notices": lambda store, name, _: store.notices(NAMESPACE, name, first=0, last=60),
    "incidents": lambda store, name, _: store.incidents(NAMESPACE, name, since=0, until=1 << 50),
    "audits": lambda store, name, _: store.audits(NAMESPACE, AuditFilter(identity=name)),
}


async def rich_schedule(registrar: Registrar) -> str:
    """Make a schedule of Bob's of which there is everything to read; return the key of its run."""
    with acting_as(BOB):
        await registrar.upsert_schedule(a_schedule("bob/weekly"))
        await registrar.upsert_schedule(a_schedule("bob/weekly", cron_expr="0 10 * * *"))
        key = str((await run_now(registrar, "bob/weekly"))["idempotency_key"])
    (case,) = await registrar.whole.cases(NAMESPACE, ["bob/weekly"])
    (run,) = case.runs
    dropped = RangeRecord("bob/weekly", 0, 60, 2, Outcome.MISSED, Reason.CATCHUP_NONE, 1, registrar.now())
    more = Change(
        case.job._replace(revision=case.job.revision + 1),
        case.job.revision,
        updates=[run._replace(attempt=2)],
        attempts=[run],
        ranges=[dropped],
        rewind=Rewind(reopened=[ReopenedRecord(*dropped, reopened_at=registrar.now())]),
        notices=[NoticeRecord("n", "bob/weekly", NoticeEvent.MISSED, "ops", 60, key, registrar.now())],
    )
    await registrar.whole.put(NAMESPACE, created=[], changed=[more], now=registrar.now())
    return key


def test_every_verb_that_reads_is_tried() -> None:
    verbs = {name for name in vars(TenantStore) if not name.startswith("_")}
    # Workers, their absences and the excursions of their clocks name no schedule.
    assert (
        verbs - {"put", "permit", "note", "clock_records", "absence", "leases", "set_drain", "read_clock"}
        == READS.keys()
    )


@pytest.mark.parametrize("verb", READS)
async def test_no_verb_reveals_schedules_of_other_tenants(verb: str, registrar: Registrar) -> None:
    key = await rich_schedule(registrar)

    async def told(caller: Caller, name: str, key: str) -> object:
        with acting_as(caller):
            await registrar.store.runs(NAMESPACE, name)
            found = await READS[verb](registrar.store, name, key)
        return found if isinstance(found, int) else len(found)

    for caller in (BOB, PROGRAM):
        assert await told(caller, "bob/weekly", key), caller
    assert await told(ANN, "bob/weekly", key) == await told(ANN, "bob/none", "0" * 64) == 0
    assert await told(TEAM, "bob/weekly", key) == 0


class CountedStore(SqliteStore):
    """A store that notes which of its verbs are called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in READS:
            self.called.append(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("verb", READS)
async def test_every_verb_asks_the_store_the_same_for_schedules_of_others_and_for_none(verb: str) -> None:
    store = CountedStore()
    registrar = Registrar(store, SimulatedClock(NOON))
    key = await rich_schedule(registrar)
    called = []
    for name, known in (("bob/weekly", key), ("bob/none", "0" * 64)):
        store.called.clear()
        with acting_as(ANN):
            await READS[verb](registrar.store, name, known)
        called.append([*store.called])
    assert called[0] == called[1]
    await store.close()


async def test_an_edit_of_what_decides_nothing_is_audited_too(registrar: Registrar) -> None:
    for tags in (["nightly"], ["nightly", "billing"]):
        await registrar.upsert_schedule(a_schedule(tags=tags))
    found = await registrar.store.audits(NAMESPACE, AuditFilter(identity="ann/daily"))
    edit, created = (each.record for each in found)
    assert (edit.action, created.action) == ("edit", "create")
    states = (json.loads(text or "") for text in (created.after, edit.before, edit.after))
    assert [state["profile"] for state in states] == [
        {"tags": ["nightly"]},
        {"tags": ["nightly"]},
        {"tags": ["billing", "nightly"]},
    ]


async def test_workflows_are_those_of_the_callers_tenants() -> None:
    inner = SqliteWorkflows()
    workflows, mine = TenantWorkflows(inner), WorkflowRecord("ann.report", 1, '{"nodes":[]}', "ann", 0)
    old, settings = (
        mine._replace(workflow_id="old"),
        WorkflowSettings(workflow_id="old", version=1, user_id="ann"),
    )
    await inner.put(old)
    with acting_as(ANN):
        assert await workflows.put(mine) == mine
        assert await workflows.get("ann.report", 1) == mine
        assert [each.version for each in await workflows.versions("ann.report")] == [1]
        assert await workflows.names(users=["ann", "bob"]) == ["ann.report", "old"]
        await workflows.check_use("daily", settings)
        with pytest.raises(InvalidScheduleError, match="must start with"):
            await workflows.check_use("daily", replace(settings, version=2))
    with acting_as(BOB):
        assert await workflows.get("ann.report", 1) is None
        assert await workflows.versions("ann.report") == []
        assert await workflows.names(users=["ann", "bob"]) == []
    assert await workflows.names(users=["ann"]) == ["ann.report", "old"]
    await workflows.close()


@pytest.mark.parametrize("name", ["program", "anybody", "nobody"])
def test_an_admin_of_any_name_is_the_actor_of_its_changes(name: str) -> None:
    with acting_as(Caller(name, EVERYTHING, None)):
        assert current_actor() == name
    for nobody in (PROGRAM, UNRESTRICTED):
        with acting_as(nobody):
            assert current_actor() is None
