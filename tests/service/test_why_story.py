"""A story of two days: what explains each period reads the same on the page, at the command line, in the API
and in the log.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import httpx
import pytest

from kron.app.backfill import PeriodRange
from kron.app.catalog import JobDefinition
from kron.cli.main import run
from kron.core.job.job import Job
from kron.fronts.service.app import app_of
from kron.fronts.service.auth.principal import EVERYTHING, Caller, acting_as
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.settings import Settings
from kron.stores.sqlite.store import SqliteStore
from kron.telemetry.decision_log import DecisionLog
from kron.testing import Step
from tests.engine_stage import HOUR, MINUTE, SECOND, Stage, job_of, stage_on

# The day before the clocks go forward in Berlin.
START = datetime(2026, 3, 28, 12, tzinfo=UTC)
ALICE, BOB, CAROL = (Caller(name, EVERYTHING, None) for name in ("alice", "bob", "carol"))
# What the periods of the story are asked, and answer.
PAUSED = (
    "the job was paused by alice from 2026-03-28T12:01:30Z to 2026-03-28T12:03:30Z: the database moves "
    "(resumed by bob)"
)
KILLED = (
    "worker first ended without a stop, after its last write at 2026-03-28T12:10:00Z; "
    "no worker ran until worker second took over at 2026-03-28T12:10:45Z"
)
LOST = (
    "worker second ended without a stop, after its last write at 2026-03-28T12:20:00Z; "
    "no worker ran until worker third took over at 2026-03-28T12:40:00Z"
)
JUMP = (
    "the host's clock moved forward by 0:20:00, from 2026-03-28T13:00:30Z to 2026-03-28T13:20:30Z "
    "(it was set, or the machine slept)"
)
EDIT = 'the job was edited by carol at 2026-03-28T13:31:00Z: schedule from "0 15 * * *" to "0 16 * * *"'
BACKFILL = (
    "a backfill was requested by bob at 2026-03-28T12:45:00Z; "
    "it started at 2026-03-28T12:45:00Z and succeeded at 2026-03-28T12:45:00Z"
)
GAP = "clocks in Europe/Berlin went forward from 2026-03-29 02:00 to 03:00, so 02:30 did not exist"
ANSWERS = [
    ("minutely", "2026-03-28T12:02:00Z", f"did not run: {PAUSED}, and the catch-up policy is none"),
    ("minutely", "2026-03-28T12:30:00Z", f"did not run: {LOST}, and the catch-up policy is none"),
    (
        "minutely",
        "2026-03-28T12:35:00Z",
        f"did not run on schedule: {LOST}, and the catch-up policy is none; made up: {BACKFILL}",
    ),
    ("minutely", "2026-03-28T13:10:00Z", f"did not run: {JUMP}, and the catch-up policy is none"),
    ("long", "2026-03-28T12:10:00Z", f"lost while it ran: {KILLED}"),
    ("long", "2026-03-28T12:10:20Z", f"succeeded, started 25s late: {KILLED}"),
    (
        "long",
        "2026-03-28T12:10:40Z",
        (
            "did not run: the period 2026-03-28T12:10:20Z was due as well and started first, at "
            f"2026-03-28T12:10:45Z, and ran until 2026-03-28T12:11:30Z; {KILLED}"
        ),
    ),
    (
        "long",
        "2026-03-28T12:11:00Z",
        (
            "did not run: the run of the period 2026-03-28T12:10:20Z, started at 2026-03-28T12:10:45Z, "
            "was still active until 2026-03-28T12:11:30Z"
        ),
    ),
    (
        "retried",
        "2026-03-28T12:05:00Z",
        "succeeded after 2 attempts",
    ),
    (
        "waiting",
        "2026-03-29T11:00:00Z",
        (
            "failed, and waits to retry: attempt 2 starts at 2026-03-29T15:00:00Z, 4h after the failure "
            "(retry_delay)"
        ),
    ),
    ("edited", "2026-03-28T15:00:00Z", f"did not run: {EDIT}"),
    ("nightly", "2026-03-29T01:30:00Z", f'no period: {GAP}; dst_gap "next" runs it at 03:00'),
    (
        "nightly",
        "2026-03-29T02:30",
        (
            f'no period: {GAP}; dst_gap "next" runs it at 03:00; '
            "the nearest are 2026-03-28T01:30:00Z and 2026-03-30T00:30:00Z"
        ),
    ),
    ("minutely", "2026-03-28T12:01:00Z", "succeeded"),
]
# Each incident is one line of the log, in the words it had then.
LOGGED = [
    "paused minutely: the job is paused by alice since 2026-03-28T12:01:30Z: the database moves",
    KILLED,
    LOST,
    JUMP,
    EDIT,
    "a backfill was requested by bob at 2026-03-28T12:45:00Z",
    "the period 2026-03-28T12:10:20Z was due as well and started first, at 2026-03-28T12:10:45Z",
]


class Scene:
    """A store file, an engine in virtual time, and the service's registrar and pages over them."""

    def __init__(self, stage: Stage, store: SqliteStore, url: str) -> None:
        self.stage, self.store, self.url = stage, store, url
        self.registrar = Registrar(store, stage.clock, wake=self._call)
        app = app_of(self.registrar, Settings())
        transport = httpx.ASGITransport(app=app)
        self.web = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def _call(self, at: int | None) -> None:
        self.stage.engine.call(at)

    async def crash(self, down: timedelta, successor: str) -> None:
        """Kill the worker with its executions; another one takes over later."""
        self.stage.engine.kill()
        await self.stage.launcher.close(wait=False)
        self.store.drop_locks()
        await self.stage.advance(down)
        self.stage.engine = self.stage.make_engine(successor)
        await self.stage.run()
        await self.stage.advance(timedelta(0))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    url = f"sqlite:///{tmp_path / 'kron.db'}"
    store = SqliteStore(str(tmp_path / "kron.db"))
    async with stage_on(store, START) as stage:
        stage.journal = DecisionLog()  # type: ignore[assignment]
        stage.engine = stage.make_engine("first")
        yield Scene(stage, store, url)
    await store.close()


async def live(scene: Scene) -> None:
    """Live through pause, failure, kill, block, outage, backfill, clock jump, edit and a night of DST."""
    stage, catalog = scene.stage, scene.registrar.catalog
    await stage.add(job_of("minutely", catchup="none"))
    await stage.add(job_of("long", "*/20 * * * * *", overlap="skip", start_at="2026-03-28T12:10:00Z",
                           end_at="2026-03-28T12:11:00Z"), script=[Step.HANG, Step.HANG])  # fmt: skip
    await stage.add(job_of("retried", "5 12 28 3 *", retry_delay="1m"), script=[Step.FAIL])
    await stage.add(job_of("waiting", "0 11 29 3 *", retry_delay="4h"), script=[Step.FAIL])
    window = {"window": {"mode": "before", "duration": "2h"}, "seed": {"salt": "f"}}
    edited = {"identity": "edited", "schedule": "0 15 * * *", **window}
    nightly = {"identity": "nightly", "schedule": "30 2 * * *", "timezone": "Europe/Berlin"}
    await stage.add(Job.from_dict(edited), Job.from_dict(nightly))
    await stage.run()
    await stage.until(START + 90 * SECOND)
    with acting_as(ALICE):
        await catalog.pause("minutely", because="the database moves")
    await stage.until(START + 210 * SECOND)
    with acting_as(BOB):
        await catalog.resume("minutely")
    await stage.until(START + 10 * MINUTE)
    await scene.crash(45 * SECOND, "second")
    await stage.until(START + 11 * MINUTE + 30 * SECOND)
    for running in list(stage.launcher.running):
        stage.launcher.finish(running)
    await stage.until(START + 20 * MINUTE)
    await scene.crash(20 * MINUTE, "third")
    await stage.until(START + 45 * MINUTE)
    noon = int(START.timestamp())
    with acting_as(BOB):
        await catalog.backfill("minutely", PeriodRange(start=noon + 2_100, end=noon + 2_101), "again")
    await stage.until(START + HOUR + 30 * SECOND)
    await stage.suspend(20 * MINUTE)
    await stage.until(START + 91 * MINUTE)
    with acting_as(CAROL):
        await catalog.upsert([JobDefinition(Job.from_dict(edited | {"schedule": "0 16 * * *"}))])
    await stage.until(START + 24 * HOUR)


@pytest.mark.slow
async def test_page_cli_api_and_log_tell_the_same_story(
    scene: Scene, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "kron"):
        await live(scene)
    for identity, period, headline in ANSWERS:
        await assert_told(scene, capfd, identity, period, headline)
    log = caplog.text.replace('\\"', '"')
    for line in LOGGED:
        assert line in log, line


async def page_told(scene: Scene, **place: str) -> str:
    """Return the page of a period with the times of its sentences as instants."""
    page = (await scene.web.get("/ui/period", params=place)).text
    return unescape(re.sub(r'<time datetime="([^"]+)"[^>]*>[^<]*</time>', r"\1", page))


async def assert_told(
    scene: Scene, capfd: pytest.CaptureFixture[str], identity: str, period: str, headline: str
) -> None:
    """Fail unless API, page and command line tell a headline, and the same facts in the same order."""
    answer = (await scene.web.get(f"/schedules/{identity}/periods/{period}/why")).json()
    assert answer["headline"] == headline, (identity, period)
    page = await page_told(scene, id=identity, at=period)
    shown, facts = await cli(scene, capfd, identity, period)
    sentences = [fact["sentence"] for fact in answer["facts"]]
    assert [fact["sentence"] for fact in facts["facts"]] == sentences
    for sentence in (headline, *sentences):
        assert f"{sentence[:1].upper()}{sentence[1:]}" in page, (identity, period, sentence)
        assert sentence[1:] in shown, (identity, period, sentence)


BEHIND = (
    "the host's clock (2026-03-28T12:04:30Z) is behind the latest recorded instant (2026-03-30T12:00:00Z) by "
    "1 day, 23:55:30: nothing new starts until it has been steady for the lookahead"
)
WAITED = (
    "the host's clock was behind the latest recorded instant (2026-03-30T12:00:00Z) by 1 day, 23:55:30, and "
    "worker first planned nothing from 2026-03-28T12:04:30Z to 2026-03-28T12:05:30Z"
)


async def test_page_cli_and_api_name_a_clock_that_is_behind(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = scene.stage
    await stage.run()
    stage.clock.jump_to(START + timedelta(days=2))
    await stage.advance(SECOND)
    stage.clock.jump_to(START + 4 * MINUTE + 30 * SECOND)
    await stage.add(job_of("fresh", catchup="all"))
    await stage.until(START + 5 * MINUTE + SECOND)
    overdue = f"due, and not processed by a worker yet: {BEHIND}"
    await assert_told(scene, capfd, "fresh", "2026-03-28T12:05:00Z", overdue)
    await stage.until(START + 7 * MINUTE)
    late = f"succeeded, started 30s late: {WAITED}"
    await assert_told(scene, capfd, "fresh", "2026-03-28T12:05:00Z", late)


async def cli(
    scene: Scene, capfd: pytest.CaptureFixture[str], identity: str, period: str
) -> tuple[str, dict[str, list[dict[str, str]]]]:
    """Return what `kron why` prints, for people and as JSON."""
    words = ("why", identity, period, "--store", scene.url, "--utc")
    texts = []
    for further in ((), ("--json",)):
        capfd.readouterr()
        await asyncio.to_thread(checked(run), (*words, *further))
        texts.append(capfd.readouterr().out)
    return texts[0], json.loads(texts[1])


def checked(call: Callable[[tuple[str, ...]], int]) -> Callable[[tuple[str, ...]], None]:
    """Return a call that asserts that its code is 0."""

    def checked_call(words: tuple[str, ...]) -> None:
        assert call(words) == 0

    return checked_call


@pytest.mark.slow
async def test_another_policy_is_answered_on_page_cli_and_api_alike(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    await live(scene)
    headline = f"succeeded, caught up: {PAUSED}"
    asked = {"if": "catchup=all"}
    answer = await scene.web.get("/schedules/minutely/periods/2026-03-28T12:02:00Z/why", params=asked)
    other = answer.json()["counterfactual"]
    assert (other["headline"], other["outcome"], other["changes"]) == (
        headline, "executed", {"catchup": "all"},
    )  # fmt: skip
    place = {"id": "minutely", "at": "2026-03-28T12:02:00Z", **asked}
    page = await page_told(scene, **place)
    assert f"{headline.capitalize()[:1]}{headline[1:]}." in page
    capfd.readouterr()
    words = ("why", "minutely", "2026-03-28T12:02:00Z", "--if", "catchup=all", "--store", scene.url, "--utc")
    assert await asyncio.to_thread(run, words) == 0
    output = capfd.readouterr().out
    assert f"If catchup=all: executed\n  {headline[:1].upper()}{headline[1:]}.\n" in output
    assert "Assumed: " in output


@pytest.mark.slow
async def test_a_replay_has_a_budget_of_processor_time(scene: Scene) -> None:
    """One of 500 periods is answered; one whose every period searches its window in vain is refused."""
    stage = scene.stage
    await stage.add(job_of("often", "* * * * * *"))
    await stage.run()
    await stage.until(START + timedelta(seconds=500))
    path = "/schedules/often/periods/2026-03-28T12:00:09Z/why"
    answer = await scene.web.get(path, params={"if": "overlap=skip"})
    assert answer.json()["counterfactual"]["headline"] == "succeeded"
    window = json.dumps({"mode": "before", "duration": "16m"})
    constraints = json.dumps({"only": {"dates": ["2001-01-01"]}})
    changes = [f"window={window}", f"constraints={constraints}"]
    # Less than the service allows, so that no machine is fast enough.
    scene.registrar.catalog.query.answer_s = 0.01
    answer = await scene.web.get(path, params={"if": changes})
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "The answer needs more than 0.01 s of processor time: request less at once",
    )


async def test_a_due_period_names_the_outage_while_it_lasts(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    """Page, command line and API say which worker ended and how, before another one takes over."""
    stage = scene.stage
    await stage.add(job_of("minutely"), job_of("hanging", "1 12 28 3 *"))
    stage.launcher.then("hanging", Step.HANG)
    await stage.until(START + MINUTE + SECOND)
    due = "due, and not processed by a worker yet"
    await told_alike(scene, capfd, "minutely", "2026-03-28T12:01:00Z", f"{due}: no worker has run yet")
    await stage.run()
    await stage.until(START + 90 * SECOND)
    stage.engine.kill()
    scene.store.drop_locks()
    await stage.until(START + 3 * MINUTE + SECOND)
    ended = (
        "worker first ended without a stop, after its last write at 2026-03-28T12:01:01Z, "
        "and no worker has run since"
    )
    await told_alike(scene, capfd, "minutely", "2026-03-28T12:02:00Z", f"{due}: {ended}")
    running = "running since 2026-03-28T12:01:01Z, started 1s late: no worker ran before worker first started"
    await told_alike(
        scene, capfd, "hanging", "2026-03-28T12:01:00Z", f"{running} at 2026-03-28T12:01:01Z; {ended}"
    )


async def told_alike(
    scene: Scene, capfd: pytest.CaptureFixture[str], identity: str, period: str, headline: str
) -> None:
    answer = (await scene.web.get(f"/schedules/{identity}/periods/{period}/why")).json()
    assert answer["headline"] == headline
    page = await page_told(scene, id=identity, at=period)
    shown, _ = await cli(scene, capfd, identity, period)
    assert f"{headline[:1].upper()}{headline[1:]}" in page
    assert f"{headline[:1].upper()}{headline[1:]}" in shown
