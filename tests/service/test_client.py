"""A call in the program and the same call over HTTP: the same effect, answers and errors (SPEC 3: 4)."""

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import uvicorn

from kron.core.errors import KronError, Problem
from kron.core.plan.query import JobFilter
from kron.core.plan.record import RunKind, request_key_of
from kron.fronts.service.app import app_of
from kron.fronts.service.client import BackfillRange, LocalClient, PageRequest, ServiceClient
from kron.fronts.service.http_client import RemoteClient, ServerError
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.runs import Feedback
from kron.fronts.service.settings import Settings
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from tests.service.executor import executing
from tests.service.registrar_rig import HOURLY, NOON
from tests.service.test_registrar import WRONG
from tests.waiting import wait_for

SETTINGS = Settings(max_page=50, max_body=2_000)
ELEVEN = "2026-01-01T11:00:00Z"
LAUNCHER = {"kind": "http", "url": "http://127.0.0.1:9/", "reports": True}

TEN = PageRequest(10)

Verb = Callable[[ServiceClient], Awaitable[object]]


class Exchange:
    """A store behind which each test puts a new one."""

    def __init__(self) -> None:
        self.behind = SqliteStore()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


class Served(NamedTuple):
    """An API on loopback without a worker, by a clock that stands still; each test gives it a new store."""

    exchange: Exchange
    clock: SimulatedClock
    desk: RemoteClient


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    clock = SimulatedClock(NOON)
    store: Any = Exchange()
    app = app_of(Registrar(store, clock), SETTINGS)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(store, clock, RemoteClient(f"http://127.0.0.1:{port}"))
    finally:
        server.should_exit = True
        thread.join()


class Pair:
    """Two desks with a store each and one clock: what is asked of one is asked of the other."""

    def __init__(self, clock: SimulatedClock, own: ServiceClient, remote: ServiceClient) -> None:
        self.clock = clock
        self._desks = own, remote

    async def both(self, verb: Verb) -> object:
        """Return what both answer, after which both know the same."""
        own, remote = [await said_by(desk, verb) for desk in self._desks]
        assert own == remote
        assert await known_to(self._desks[0]) == await known_to(self._desks[1])
        return own


async def said_by(desk: ServiceClient, verb: Verb) -> object:
    """Return an answer, or everything that can be seen of an error."""
    try:
        return await verb(desk)
    except KronError as error:
        problems: Sequence[Problem] = getattr(error, "problems", ())
        return type(error), error.code, str(error), error.lines(), list(map(str, problems))


async def known_to(desk: ServiceClient) -> object:
    """Return all schedules with all their fields, and all runs."""
    sheet = PageRequest(SETTINGS.max_page)
    return await desk.schedules(JobFilter(), sheet), await desk.latest(None, sheet)


@pytest.fixture
async def pair(served: Served) -> AsyncIterator[Pair]:
    served.clock.jump_to(NOON + timedelta(milliseconds=1))
    here, there = SqliteStore(), SqliteStore()
    served.exchange.behind = there
    yield Pair(served.clock, LocalClient(Registrar(here, served.clock), SETTINGS), served.desk)
    await here.close()
    await there.close()


def upsert(name: str = "hourly", *, if_match: str | None = None, **fields: object) -> Verb:
    return lambda desk: desk.upsert({**HOURLY, "schedule_id": name, **fields}, if_match=if_match)


def bulk(*documents: object) -> Verb:
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in documents)
    return lambda desk: desk.bulk(text.encode())


def pause(paused: bool, name: str = "hourly", *, if_match: str | None = None) -> Verb:
    return lambda desk: desk.pause(name, paused, if_match=if_match)


def delete(name: str = "hourly", *, if_match: str | None = None) -> Verb:
    return lambda desk: desk.delete(name, if_match=if_match)


def find(sheet: PageRequest = TEN, **wanted: object) -> Verb:
    return lambda desk: desk.schedules(JobFilter(**wanted), sheet)  # type: ignore[arg-type]


def latest(status: str | None = None, sheet: PageRequest = TEN) -> Verb:
    return lambda desk: desk.latest(status, sheet)


def runs(name: str = "hourly", sheet: PageRequest = TEN) -> Verb:
    return lambda desk: desk.runs(name, sheet)


def run(request_id: str = "one", name: str = "hourly") -> Verb:
    return lambda desk: desk.run(name, request_id)


def backfill(start: str = "2026-01-01T09:00:00Z", end: str = ELEVEN, **more: object) -> Verb:
    span = BackfillRange(start, end, **{"request_id": "one", **more})  # type: ignore[arg-type]
    return lambda desk: desk.backfill("hourly", span)


def report(key: str, status: str = "SUCCESS", **more: object) -> Verb:
    return lambda desk: desk.report(key, Feedback(status, **more))  # type: ignore[arg-type]


ODD_NAMES = ("prod/db", "a b%2F?#&", "ünï 😀", "..", "upsert")
ASKED = request_key_of("hourly", RunKind.MANUAL, "one")
# What comes first, what is asked then, three hours later, and the code of the error it is refused with.
CASES: dict[str, tuple[Sequence[Verb], Verb, str | None]] = {
    "a new schedule": ([], upsert(), None),
    "a changed schedule": ([upsert()], upsert(version=4, overlap_policy="queue"), None),
    "a schedule that pauses": ([upsert()], upsert(paused=True), None),
    "a schedule that is only created": ([], upsert(if_match=""), None),
    "a schedule that exists": ([upsert()], upsert(if_match=""), "schedule_changed"),
    "a state nobody has seen": ([upsert()], upsert(if_match='"x"'), "schedule_changed"),
    "a state of nothing": ([], upsert(if_match='"x"'), "schedule_changed"),
    "any state": ([upsert()], upsert(if_match="*", version=4), None),
    "many lines": ([upsert("b")], bulk({**HOURLY, "version": 9}, "", {**HOURLY, "schedule_id": "b"}), None),
    "no lines": ([], bulk(), None),
    "wrong lines": ([], bulk(HOURLY, "{", "", {**HOURLY, "timezone": "Mars"}, "[]"), "invalid_lines"),
    "more wrong lines than are said": ([], bulk(*["{"] * 150), "invalid_lines"),
    "one name in two lines": ([], bulk(HOURLY, HOURLY), "invalid_lines"),
    "a line that is too long": ([], bulk({**HOURLY, "user_id": "x" * 3_000}), "invalid_lines"),
    "a pause": ([upsert()], pause(True), None),
    "a pause of what is paused": ([upsert(), pause(True)], pause(True), None),
    "a resume": ([upsert(catchup_policy="all"), pause(True)], pause(False), None),
    "a pause of nothing": ([], pause(True), "unknown_schedule"),
    "a pause of what was not seen": ([upsert()], pause(True, if_match='"x"'), "schedule_changed"),
    "a deletion": ([upsert()], delete(), None),
    "a deletion of nothing": ([], delete(), "unknown_schedule"),
    "a deletion of what is gone": ([upsert(), delete()], delete(), "unknown_schedule"),
    "a deletion of what was not seen": ([upsert()], delete(if_match='"x"'), "schedule_changed"),
    "a look": ([upsert(jitter_ms=500)], lambda desk: desk.schedule("hourly"), None),
    "a look at nothing": ([], lambda desk: desk.schedule("hourly"), "unknown_schedule"),
    "a look at no name": ([], lambda desk: desk.schedule("\0"), "unknown_schedule"),
    "a list": ([upsert("b"), upsert("a")], find(), None),
    "a search": ([upsert("b"), upsert("a")], find(search="B"), None),
    "those of a user": ([upsert("b"), upsert("a", user_id="bob")], find(user_id="bob"), None),
    "those of a workflow": ([upsert("b"), upsert("a")], find(workflow_id="none"), None),
    "those that are paused": ([upsert("b"), upsert("a", paused=True)], find(paused=True), None),
    "those that are not": ([upsert("b"), upsert("a", paused=True)], find(paused=False), None),
    "a page": ([upsert("b"), upsert("a")], find(PageRequest(1)), None),
    "the next page": ([upsert("b"), upsert("a")], find(PageRequest(1, "WyJhIl0")), None),
    "no page": ([], find(PageRequest(10, "x")), "invalid_option"),
    "an empty page": ([], find(PageRequest(0)), "invalid_option"),
    "a page that is too long": ([], find(PageRequest(51)), "invalid_option"),
    "a foreseen resume": (
        [upsert(catchup_policy="all"), pause(True)],
        lambda desk: desk.preview_resume("hourly"),
        None,
    ),
    "a foreseen resume of nothing": ([], lambda desk: desk.preview_resume("hourly"), "unknown_schedule"),
    "a preview": ([], lambda desk: desk.preview({"cron_expr": "30 2 * * *", "timezone": "UTC"}, 3), None),
    "a wrong preview": ([], lambda desk: desk.preview({"cron_expr": "x"}, 3), "invalid_schedule"),
    "too long a preview": ([], lambda desk: desk.preview(HOURLY, 51), "invalid_option"),
    "a run": ([upsert()], run(), None),
    "the same run": ([upsert(), run()], run(), None),
    "a run of nothing": ([], run(), "unknown_schedule"),
    "a run with no name": ([upsert()], run(""), "invalid_option"),
    "a run with a long name": ([upsert()], run("x" * 501), "invalid_option"),
    "a backfill": ([upsert()], backfill(), None),
    "the same backfill": ([upsert(), backfill()], backfill(), None),
    "a backfill that is only counted": ([upsert()], backfill(dry_run=True, only="all"), None),
    "a backfill of some": ([upsert()], backfill(only="some"), "invalid_option"),
    "a backfill backwards": ([upsert()], backfill("2026-01-02T00:00:00Z"), "invalid_option"),
    "a backfill from no time": ([upsert()], backfill("monday"), "invalid_option"),
    "a backfill of too much": ([upsert()], backfill("2020-01-01T00:00:00Z"), "invalid_option"),
    "a backfill of nothing": ([], backfill(), "unknown_schedule"),
    "a report": (
        [upsert(launcher=LAUNCHER), backfill("2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z")],
        report(ASKED),
        "unknown_run",
    ),
    "a report of what its worker notices": ([upsert(), run()], report("{}"), "unknown_run"),
    "a report of nothing": ([], report("f" * 64), "unknown_run"),
    "runs": ([upsert(), run(), run("two")], runs(), None),
    "a page of runs": ([upsert(), run(), run("two")], runs(sheet=PageRequest(1)), None),
    "runs of nothing": ([], runs(), "unknown_schedule"),
    "runs of what is gone": ([upsert(), run(), delete()], runs(), None),
    "no page of runs": ([upsert()], runs(sheet=PageRequest(1, "x")), "invalid_option"),
    "all runs": ([upsert(), run(), upsert("b"), run("two", "b")], latest(sheet=PageRequest(1)), None),
    "all runs that wait": ([upsert(), run()], latest("PENDING"), None),
    "all runs of no status": ([], latest("LATE"), "invalid_option"),
    "a period": (
        [upsert(), backfill()],
        lambda desk: desk.period("hourly", "2026-01-01T10:00:00+00:00"),
        None,
    ),
    "a period of nothing": ([], lambda desk: desk.period("hourly", ELEVEN), "unknown_schedule"),
    "a period of no time": ([upsert()], lambda desk: desk.period("hourly", "x"), "invalid_option"),
    "why": ([upsert()], lambda desk: desk.why("hourly", ELEVEN), None),
    "why at a wall time": ([upsert()], lambda desk: desk.why("hourly", "2026-01-01T15:00"), None),
    "why with another policy": (
        [upsert()],
        lambda desk: desk.why("hourly", ELEVEN, ["overlap=allow", "duration=2m"]),
        None,
    ),
    "why with no such policy": (
        [upsert()],
        lambda desk: desk.why("hourly", ELEVEN, ["overlap=never"]),
        "invalid_option",
    ),
    "why with a field alone": (
        [upsert()],
        lambda desk: desk.why("hourly", ELEVEN, ["overlap"]),
        "invalid_option",
    ),
    "why of nothing": ([], lambda desk: desk.why("hourly", ELEVEN), "unknown_schedule"),
    "why of no time": ([upsert()], lambda desk: desk.why("hourly", "x"), "invalid_instant"),
    "health": ([], lambda desk: desk.health(), None),
}
CASES |= {f"the name {name}": ([upsert(name)], runs(name), None) for name in ODD_NAMES}


@pytest.mark.parametrize(("first", "verb", "code"), CASES.values(), ids=CASES)
async def test_every_verb_is_the_same_in_the_program_and_over_http(
    pair: Pair, first: Sequence[Verb], verb: Verb, code: str | None
) -> None:
    for each in first:
        await pair.both(each)
    pair.clock.jump_to(NOON + timedelta(hours=3))
    answer = await pair.both(verb)
    assert (answer[1] if isinstance(answer, tuple) else None) == code


async def test_what_is_wrong_with_a_schedule_is_the_same_in_the_program_and_over_http(pair: Pair) -> None:
    for parameters in WRONG:
        fields, path = parameters.values
        answer = await pair.both(upsert(**{"schedule_id": "hourly", **fields}))  # type: ignore[dict-item]
        assert isinstance(answer, tuple), path
        assert answer[1] == "invalid_schedule"


# --- over HTTP alone -------------------------------------------------------------------------------


async def test_a_token_is_sent_and_what_is_no_service_is_said() -> None:
    with executing() as executor:
        desk = RemoteClient(executor.url, token="s3cret")
        with pytest.raises(ServerError, match="202 and no JSON object") as refused:
            await desk.run("x")
        assert "s3cret" not in str(refused.value)
        assert executor.sent[0].headers["authorization"] == "Bearer s3cret"
    with pytest.raises(ServerError, match="refused"):
        await desk.health()


@pytest.mark.parametrize("server", ["127.0.0.1:80", "ftp://h", "http://", "http://h?x=1", "http://h:x"])
def test_an_address_that_is_none_is_refused(server: str) -> None:
    with pytest.raises(KronError, match="Invalid server"):
        RemoteClient(server)
