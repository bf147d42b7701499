"""The registrar in a program: what it stores, what it refuses, and what comes of it (SPEC 3: 3, 4, 5, 12)."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.errors import InputError, UnknownRunError
from kron.core.plan.next_start import next_start
from kron.core.plan.query import AuditFilter, FoundJob, JobFilter
from kron.core.plan.record import key_of
from kron.core.plan.registration import create
from kron.core.plan.step import JobState
from kron.fronts.service.bulk import upsert_lines
from kron.fronts.service.documents import preview_of, schedule_view
from kron.fronts.service.errors import (
    ChangedError,
    InvalidLinesError,
    InvalidScheduleError,
    UnknownScheduleError,
)
from kron.fronts.service.runs import Feedback, run_now, runs_page, take_feedback, why
from kron.fronts.service.schedule_spec import SCHEDULE, Rules, parse_schedule_spec
from kron.launchers.http.egress import egress_policy_of
from kron.launchers.http.spec import HttpOptions
from kron.launchers.process.spec import ProcessOptions
from kron.launchers.spec import LauncherConfig, launcher_text_of
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Step
from tests.service.registrar_rig import HOURLY, MINUTE, MINUTELY, NOON, SECOND, WORK, json_lines, office_on
from tests.strategies import law

NOON_S = int(NOON.timestamp())


async def test_a_schedule_has_all_its_fields_and_the_usual_ones(store: Store) -> None:
    async with office_on(store) as office:
        receipt = await office.registrar.upsert_schedule(HOURLY)
        assert (receipt["schedule_id"], receipt["next_run_at"]) == ("hourly", "2026-01-01T13:00:00Z")
        found = await office.registrar.get_schedule("hourly")
        assert {name: found[name] for name in HOURLY} == HOURLY
        usual = {
            "start_at": None,
            "end_at": None,
            "next_run_at": "2026-01-01T13:00:00Z",
            "paused": False,
            "jitter_ms": 0,
            "overlap_policy": "skip",
            "catchup_policy": "none",
            "deadline": None,
            "on_orphan": "fail",
            "updated_at": "2026-01-01T12:00:00.001Z",
        }
        assert {name: found[name] for name in usual} == usual
        assert found["preview"] == [f"2026-01-01T{hour}:00:00Z" for hour in (13, 14, 15, 16, 17)]


async def test_a_schedule_without_a_name_gets_one_that_nothing_else_has(store: Store) -> None:
    async with office_on(store) as office:
        nameless = {name: value for name, value in HOURLY.items() if name != "schedule_id"}
        names = {str((await office.registrar.upsert_schedule(nameless))["schedule_id"]) for _ in range(5)}
        assert len(names) == 5
        listed = await office.registrar.list_schedules(JobFilter())
        assert {schedule["schedule_id"] for schedule in listed} == names


async def test_what_is_said_is_stored_and_given_back(store: Store) -> None:
    said = {
        "start_at": "2026-01-02T00:00:00Z",
        "end_at": "2026-02-01T00:00:00Z",
        "jitter_ms": 250,
        "overlap_policy": "queue",
        "catchup_policy": "fire_immediately",
        "deadline": "10m",
        "retry_delay": "5s",
        "run_timeout": "1h",
        "queue_max": 7,
        "max_catchup": 9,
        "remaining": 5,
        "pause_after_failures": 3,
        "on_orphan": "restart",
        "window": {"mode": "after", "duration": "10m"},
        "distribution": {"name": "skewLate", "shape": 2.5},
        "seed": {"strategy": "daily", "salt": "s"},
        "constraints": {"only": {"hours": [0, 1]}, "avoid": {}},
        "dst_gap": "next",
        "dst_repeat": "first",
        "paused": True,
    }
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**HOURLY, **said})
        found = await office.registrar.get_schedule("hourly")
        for name, value in said.items():
            if name != "constraints":
                assert found[name] == value, name
        assert found["timezone"] == "UTC"


async def test_policy_fields_may_stand_in_a_policy_object(store: Store) -> None:
    async with office_on(store) as office:
        policy = {"concurrency": "allow", "deadline": "1m", "suspend": True}
        await office.registrar.upsert_schedule({**HOURLY, "policy": policy})
        found = await office.registrar.get_schedule("hourly")
        assert (found["overlap_policy"], found["deadline"]) == ("allow", "1m")
        assert (found["suspended"], found["paused"]) == (True, False)


@pytest.mark.parametrize(
    ("expression", "zone", "first"),
    [
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-01-02T01:30:00Z", id="five fields, in a zone"),
        pytest.param("15 0 12 * * *", "UTC", "2026-01-01T12:00:15Z", id="six fields, seconds first"),
        pytest.param("0 9 * * *", "America/Argentina/Buenos_Aires", "2026-01-02T12:00:00Z", id="three parts"),
    ],
)
async def test_expressions_have_five_fields_or_six_and_a_zone(
    store: Store, expression: str, zone: str, first: str
) -> None:
    async with office_on(store) as office:
        asked = {**HOURLY, "cron_expr": expression, "timezone": zone}
        receipt = await office.registrar.upsert_schedule(asked)
        assert receipt["next_run_at"] == first


@pytest.mark.parametrize(
    ("fields", "next_run_at", "preview"),
    [
        pytest.param(
            {"start_at": "2026-01-01T15:00:00Z"}, "2026-01-01T15:00:00Z", 5, id="at start_at itself"
        ),
        pytest.param({"start_at": "2020-01-01T00:00:00Z"}, "2026-01-01T13:00:00Z", 5, id="started long ago"),
        pytest.param({"end_at": "2026-01-01T14:00:00Z"}, "2026-01-01T13:00:00Z", 2, id="cut off by end_at"),
        pytest.param({"end_at": "2026-01-01T12:30:00Z"}, None, 0, id="over before its first time"),
        pytest.param({"remaining": 3}, "2026-01-01T13:00:00Z", 3, id="so many times only"),
    ],
)
async def test_the_next_times_lie_between_start_and_end(
    store: Store, fields: dict[str, object], next_run_at: str | None, preview: int
) -> None:
    async with office_on(store) as office:
        receipt = await office.registrar.upsert_schedule({**HOURLY, **fields})
        found = await office.registrar.get_schedule("hourly")
        assert receipt["next_run_at"] == found["next_run_at"] == next_run_at
        times = found["preview"]
        assert isinstance(times, list)
        assert (len(times), times[:1]) == (preview, [next_run_at] if preview else [])


WRONG = [
    pytest.param({"cron_expr": "0 9 * *"}, "cron_expr", id="a field too few"),
    pytest.param({"cron_expr": "0 0 30 2 *"}, "cron_expr", id="never matches"),
    pytest.param({"cron_expr": None}, "cron_expr", id="no expression"),
    pytest.param({"timezone": "Mars/Olympus"}, "timezone", id="unknown zone"),
    pytest.param({"timezone": None}, "timezone", id="no zone"),
    pytest.param({"workflow_id": None}, "workflow_id", id="no workflow"),
    pytest.param({"workflow_id": 7}, "workflow_id", id="a workflow that is no text"),
    pytest.param({"version": "3"}, "version", id="a version that is no number"),
    pytest.param({"version": True}, "version", id="a version that is a truth value"),
    pytest.param({"user_id": None}, "user_id", id="no user"),
    pytest.param({"overlap_policy": "maybe"}, "overlap_policy", id="unknown overlap policy"),
    pytest.param({"catchup_policy": "maybe"}, "catchup_policy", id="unknown catch-up policy"),
    pytest.param({"jitter_ms": 60_001}, "jitter_ms", id="jitter beyond the lookahead"),
    pytest.param({"jitter_ms": -1}, "jitter_ms", id="negative jitter"),
    pytest.param({"start_at": "tomorrow"}, "start_at", id="no instant"),
    pytest.param(
        {"start_at": "2026-01-02T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"}, "end_at", id="ends first"
    ),
    pytest.param({"paused": "no"}, "paused", id="a pause that is neither"),
    pytest.param({"schedule_id": ""}, "schedule_id", id="empty name"),
    pytest.param({"schedule_id": "x" * 501}, "schedule_id", id="long name"),
    pytest.param({"cron": "* * * * *"}, "cron", id="unknown field"),
    pytest.param({"deadline": "1m", "policy": {"deadline": "2m"}}, "deadline", id="said twice"),
    pytest.param(
        {"overlap_policy": "skip", "policy": {"concurrency": "allow"}}, "overlap_policy", id="in two words"
    ),
    pytest.param(
        {"policy": {"concurrency": "skip", "overlap": "allow"}}, "policy.overlap", id="both words in a policy"
    ),
    pytest.param({"policy": []}, "policy", id="a policy that is no object"),
    pytest.param({"policy": {"overlapp": "skip"}}, "policy.overlapp", id="unknown policy field"),
    pytest.param({"launcher": {"kind": "http"}}, "launcher.url", id="a launcher without its address"),
    pytest.param({"launcher": "http"}, "launcher", id="a launcher that is no object"),
    pytest.param({"launcher": {"kind": "log", "user_id": "bob"}}, "user_id", id="two users"),
    # --- values that a database would change, or not take
    pytest.param({"version": 2**31}, "version", id="a version beyond the range"),
    pytest.param({"version": 10**30}, "version", id="a huge version"),
    pytest.param({"version": -1}, "version", id="a negative version"),
    pytest.param({"version": 3.0}, "version", id="a version that is a float"),
    pytest.param({"workflow_id": ""}, "workflow_id", id="an empty workflow"),
    pytest.param({"workflow_id": "a\0"}, "workflow_id", id="a workflow with NUL"),
    pytest.param({"workflow_id": "\ud800"}, "workflow_id", id="a workflow with half a character"),
    pytest.param({"workflow_id": "x" * 501}, "workflow_id", id="a long workflow"),
    pytest.param({"workflow_id": "a\nb"}, "workflow_id", id="a workflow on two lines"),
    pytest.param({"user_id": " "}, "user_id", id="an empty user"),
    pytest.param({"user_id": "a\0"}, "user_id", id="a user with NUL"),
    pytest.param({"user_id": "\udfff"}, "user_id", id="a user with half a character"),
    pytest.param({"user_id": "\u00e9" * 251}, "user_id", id="a user of too many bytes"),
    pytest.param({"schedule_id": "a\0"}, "schedule_id", id="a name with NUL"),
    pytest.param({"schedule_id": "\ud800"}, "schedule_id", id="a name with half a character"),
    pytest.param({"cron_expr": "* * * * *\0"}, "cron_expr", id="an expression with NUL"),
    pytest.param({"timezone": "UTC\ud800"}, "timezone", id="a zone with half a character"),
    pytest.param({"seed": {"salt": "a\0"}}, "seed.salt", id="a salt with NUL"),
    pytest.param({"calendars": {"a\0": ["2026-01-01"]}}, "calendars.a\0", id="a calendar with NUL"),
    pytest.param({"a\0": 1}, "a\0", id="a field with NUL"),
    pytest.param({"jitter_ms": 5.0}, "jitter_ms", id="jitter that is a float"),
    pytest.param({"jitter_ms": True}, "jitter_ms", id="jitter that is a truth value"),
    pytest.param({"jitter_ms": 10**40}, "jitter_ms", id="huge jitter"),
    pytest.param({"remaining": 10**30}, "remaining", id="a huge number of runs"),
    pytest.param({"run_timeout": 10**30}, "run_timeout", id="a huge duration"),
    pytest.param(
        {"launcher": {"kind": "http", "url": "http://a/", "headers": {"X": "a\0"}}},
        "launcher.headers",
        id="a header with NUL",
    ),
    pytest.param(
        {"launcher": {"kind": "celery", "task": "t", "kwargs": {"a": ["\ud800"]}}},
        "launcher.kwargs",
        id="a payload with half a character",
    ),
]


@pytest.mark.parametrize(("fields", "path"), WRONG)
async def test_what_is_wrong_is_refused_with_its_path_and_nothing_is_stored(
    fields: dict[str, object], path: str
) -> None:
    async with office_on(SqliteStore()) as office:
        with pytest.raises(InvalidScheduleError) as refused:
            await office.registrar.upsert_schedule({**HOURLY, **fields})
        assert [problem.path for problem in refused.value.problems] == [path]
        assert await office.registrar.list_schedules(JobFilter()) == []


async def test_everything_that_is_wrong_is_said_at_once(store: Store) -> None:
    async with office_on(store) as office:
        with pytest.raises(InvalidScheduleError) as refused:
            await office.registrar.upsert_schedule({"cron_expr": "x", "timezone": "Y", "jitter_ms": -1})
        assert {problem.path for problem in refused.value.problems} == {
            "workflow_id", "version", "user_id", "cron_expr", "timezone", "jitter_ms",
        }  # fmt: skip


async def test_what_is_usual_and_what_is_allowed_is_the_operators_choice(store: Store) -> None:
    rules = Rules(
        overlap_policy="allow",
        catchup_policy="spread",
        jitter_ms=100,
        lookahead_ms=1_000,
        launcher={"kind": "http", "url": "http://127.0.0.1:9/start"},
        timezones=frozenset({"UTC"}),
        launchers=LauncherConfig(
            (
                ProcessOptions(allowed_commands=frozenset({"/bin/true"})),
                HttpOptions(egress=egress_policy_of(["example.com"])),
            )
        ),
    )
    async with office_on(store, rules) as office:
        await office.registrar.upsert_schedule(HOURLY)
        found = await office.registrar.get_schedule("hourly")
        assert (found["overlap_policy"], found["catchup_policy"], found["jitter_ms"]) == (
            "allow",
            "spread",
            100,
        )
        launcher = found["launcher"]
        assert isinstance(launcher, dict)
        assert (launcher["kind"], launcher["workflow_id"]) == ("http", "wf")
        allowed: dict[str, object] = {"kind": "process", "command": ["/bin/true", "-x"]}
        await office.registrar.upsert_schedule({**HOURLY, "launcher": allowed})
        for fields, path in (
            ({"timezone": "Europe/Berlin"}, "timezone"),
            ({"jitter_ms": 1_001}, "jitter_ms"),
            ({"launcher": {"kind": "process", "command": ["/bin/rm"]}}, "launcher.command"),
            ({"launcher": {"kind": "process", "command": "/bin/true; rm"}}, "launcher.command"),
            ({"launcher": {"kind": "http", "url": "http://169.254.1.1/"}}, "launcher.url"),
        ):
            with pytest.raises(InvalidScheduleError) as refused:
                await office.registrar.upsert_schedule({**HOURLY, **fields})
            assert [problem.path for problem in refused.value.problems] == [path]


async def test_secrets_of_a_launcher_are_not_given_back(store: Store) -> None:
    async with office_on(store) as office:
        launcher = {"kind": "http", "url": "http://u:pw@h/x?token=s3cret", "headers": {"X-Key": "s3cret"}}
        await office.registrar.upsert_schedule({**HOURLY, "launcher": launcher})
        shown = str(await office.registrar.get_schedule("hourly"))
        assert "http://h/x?***" in shown
        assert not [secret for secret in ("s3cret", "pw@") if secret in shown]


async def test_an_upsert_changes_the_schedule_and_keeps_its_pause_and_its_history(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        await office.work()
        await office.until(NOON + 2 * MINUTE)
        await office.registrar.pause_schedule("minutely", True)
        before = await office.runs("minutely")
        await office.registrar.upsert_schedule({**MINUTELY, "cron_expr": "*/5 * * * *", "version": 4})
        found = await office.registrar.get_schedule("minutely")
        assert (found["paused"], found["cron_expr"], found["version"]) == (True, "*/5 * * * *", 4)
        assert await office.runs("minutely") == before != []
        assert len(await office.registrar.list_schedules(JobFilter())) == 1
        await office.registrar.upsert_schedule({**MINUTELY, "cron_expr": "*/5 * * * *", "paused": False})
        await office.until(NOON + 5 * MINUTE)
        assert [run.nominal_time - NOON_S for run in await office.runs("minutely")] == [60, 120, 300]


async def test_an_edit_that_also_pauses_is_one_change(store: Store) -> None:
    async with office_on(store) as office:
        windowed = {**MINUTELY, "window": {"mode": "before", "duration": "10m"}}
        await office.registrar.upsert_schedule(windowed)
        await office.work()
        await office.until(NOON + 30 * SECOND)
        waiting = [run for run in await office.runs("minutely") if run.status == "PENDING"]
        assert waiting
        await office.registrar.upsert_schedule({**windowed, "seed": {"salt": "x"}, "paused": True})
        assert all(run.due_at is None for run in await office.runs("minutely"))
        started = len(office.launchers["workflow"].started)
        await office.until(NOON + 5 * MINUTE)
        assert len(office.launchers["workflow"].started) == started


async def test_a_paused_schedule_starts_nothing_and_its_resume_says_what_it_starts(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(
            {**MINUTELY, "catchup_policy": "fire_immediately", "overlap_policy": "allow"}
        )
        await office.work()
        await office.until(NOON + MINUTE)
        await office.registrar.pause_schedule("minutely", True)
        await office.until(NOON + 4 * MINUTE + SECOND)
        assert await office.seen("minutely") == ["SUCCESS due"]
        foreseen = await office.registrar.preview_resume("minutely")
        assert (foreseen["would_start"], foreseen["starts"]) == (
            3,
            [f"2026-01-01T12:0{n}:00Z" for n in (2, 3, 4)],
        )
        assert await office.seen("minutely") == ["SUCCESS due"]
        resumed = await office.registrar.pause_schedule("minutely", False)
        assert (resumed["would_start"], resumed["paused"]) == (3, False)
        await office.until(NOON + 4 * MINUTE + 2 * SECOND)
        assert await office.seen("minutely") == ["SUCCESS due", *["SUCCESS caught_up"] * 3]


async def test_an_upsert_that_no_longer_suspends_a_schedule_lets_it_run(store: Store) -> None:
    async with office_on(store) as office:
        registrar = office.registrar
        fields = {**MINUTELY, "catchup_policy": "fire_immediately", "overlap_policy": "allow"}
        await registrar.upsert_schedule({**fields, "policy": {"suspend": True}})
        await office.work()
        await office.until(NOON + 2 * MINUTE + SECOND)
        found = await registrar.get_schedule("minutely")
        assert (found["suspended"], found["paused"]) == (True, False)
        assert await office.seen("minutely") == []
        receipt = await registrar.upsert_schedule({**fields, "policy": {"suspend": False}})
        assert receipt["etag"] != found["etag"]
        await office.until(NOON + 3 * MINUTE + SECOND)
        assert await office.seen("minutely") == [*["SUCCESS caught_up"] * 2, "SUCCESS due"]


async def test_a_resume_of_a_suspended_schedule_says_that_its_definition_suspends_it(store: Store) -> None:
    async with office_on(store) as office:
        registrar = office.registrar
        await registrar.upsert_schedule({**MINUTELY, "policy": {"suspend": True}})
        paused = await registrar.pause_schedule("minutely", True, reason="the target is down")
        assert (paused["paused"], paused["suspended"]) == (True, True)
        assert "its definition suspends it too" in str(paused["note"])
        assert (await registrar.get_schedule("minutely"))["paused_because"] == "the target is down"
        foreseen = await registrar.preview_resume("minutely")
        assert (foreseen["would_start"], "suspends it" in str(foreseen["note"])) == (0, True)
        resumed = await registrar.pause_schedule("minutely", False)
        assert (resumed["paused"], resumed["suspended"]) == (False, True)
        assert str(resumed["note"]).startswith("resumed, but its definition suspends it (policy.suspend)")
        await office.work()
        await office.until(NOON + 2 * MINUTE)
        assert await office.seen("minutely") == []


@pytest.mark.parametrize(
    ("catchup", "would_start", "would_wait", "would_drop"),
    [
        pytest.param("none", 0, 0, {"catchup_none": 300}, id="none"),
        pytest.param("once", 1, 0, {"superseded": 299}, id="once"),
        pytest.param("fire_immediately", 300, 0, {}, id="all, several ticks long"),
        pytest.param("spread", 0, 300, {}, id="spread"),
    ],
)
@pytest.mark.slow
async def test_what_a_resume_would_do_is_what_it_does(
    store: Store, catchup: str, would_start: int, would_wait: int, would_drop: dict[str, int]
) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(
            {**MINUTELY, "catchup_policy": catchup, "overlap_policy": "allow", "paused": True}
        )
        await office.work()
        await office.until(NOON + 300 * MINUTE + SECOND)
        foreseen = await office.registrar.preview_resume("minutely")
        assert foreseen["would_start"] == would_start
        assert foreseen["would_wait"] == would_wait
        assert foreseen["would_drop"] == would_drop
        await office.registrar.pause_schedule("minutely", False)
        # A hundred missed periods start per tick of a second.
        await office.until(NOON + 300 * MINUTE + (1.5 + would_start // 100) * SECOND)
        assert len(office.launchers["workflow"].started) - would_start in range(would_wait // 60 + 1)


async def test_a_deleted_schedule_is_gone_and_its_history_stays(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        await office.work()
        await office.until(NOON + 2 * MINUTE)
        await office.registrar.delete_schedule("minutely")
        for call in (
            office.registrar.get_schedule("minutely"),
            office.registrar.delete_schedule("minutely"),
            office.registrar.pause_schedule("minutely", True),
            office.registrar.preview_resume("minutely"),
        ):
            with pytest.raises(UnknownScheduleError):
                await call
        await office.until(NOON + 5 * MINUTE)
        assert [run.key for run in await office.runs("minutely")] == [
            key_of("minutely", NOON_S + 60 * minute) for minute in (1, 2)
        ]


async def test_a_deletion_cancels_what_waits_and_leaves_what_runs(store: Store) -> None:
    """Minute 1 runs, minute 2 waits for its end, and the window of minute 3 is open."""
    async with office_on(store) as office:
        launcher = office.launchers["workflow"]
        launcher.then("minutely", Step.HANG)
        await office.registrar.upsert_schedule({**MINUTELY, "overlap_policy": "queue", "jitter_ms": 20_000})
        await office.work()
        await office.until(NOON + 2 * MINUTE + 50 * SECOND)
        running, *waiting = await office.runs("minutely")
        assert (running.status, {run.status for run in waiting}) == ("STARTED", {"PENDING"})
        assert {run.reason for run in waiting} == {"queued", "planned"}
        await office.registrar.delete_schedule("minutely")
        left, *others = await office.runs("minutely")
        assert (left.status, {run.status for run in others}) == ("STARTED", {"CANCELLED"})
        launcher.end(launcher.running[0])
        await office.until(NOON + 5 * MINUTE)
        ended, *cancelled = await office.runs("minutely")
        assert (ended.key, ended.outcome, ended.is_open) == (running.key, "executed", 0)
        assert [run.key for run in cancelled] == [run.key for run in waiting]
        assert {(run.status, run.reason, run.outcome) for run in cancelled} == {
            ("CANCELLED", "deleted", "skipped")
        }
        assert len(launcher.started) == 1


async def test_a_schedule_created_again_starts_no_period_twice_and_is_new(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, "remaining": 2})
        await office.work()
        await office.until(NOON + 3 * MINUTE)
        await office.registrar.pause_schedule("minutely", True)
        await office.registrar.delete_schedule("minutely")
        receipt = await office.registrar.upsert_schedule({**MINUTELY, "remaining": 2})
        assert receipt["next_run_at"] == "2026-01-01T12:04:00Z"
        assert (await office.registrar.get_schedule("minutely"))["paused"] is False
        await office.until(NOON + 9 * MINUTE)
        started = [start.nominal_time - NOON_S for start in office.launchers["workflow"].started]
        assert started == [60, 120, 240, 300]


async def test_a_state_somebody_has_not_seen_is_not_overwritten(store: Store) -> None:
    async with office_on(store) as office:
        registrar = office.registrar
        seen = str((await registrar.upsert_schedule(MINUTELY, if_match=""))["etag"])
        with pytest.raises(ChangedError):
            await registrar.upsert_schedule(MINUTELY, if_match="")
        with pytest.raises(ChangedError):
            await registrar.upsert_schedule(HOURLY, if_match=seen)
        await office.work()
        # Progress is no change of the schedule.
        await office.until(NOON + 2 * MINUTE)
        newer = str((await registrar.upsert_schedule({**MINUTELY, "version": 4}, if_match=seen))["etag"])
        for call in (
            registrar.upsert_schedule(MINUTELY, if_match=seen),
            registrar.pause_schedule("minutely", True, if_match=seen),
            registrar.delete_schedule("minutely", if_match=seen),
        ):
            with pytest.raises(ChangedError):
                await call
        await registrar.pause_schedule("minutely", True, if_match=f'"other", {newer}')
        await registrar.delete_schedule("minutely", if_match="*")


async def test_many_are_stored_together_or_not_at_all(store: Store) -> None:
    async with office_on(store) as office:
        lines = [{**HOURLY, "schedule_id": f"s{number}"} for number in range(1, 301)]
        assert await upsert_lines(office.registrar, json_lines(lines), max_line=10_000) == (300, 1)
        bad: list[object] = [
            {**HOURLY, "schedule_id": "new"},
            {**HOURLY, "cron_expr": "?"},
            "no object",
            {**HOURLY, "schedule_id": "new"},
        ]
        with pytest.raises(InvalidLinesError) as refused:
            await upsert_lines(office.registrar, json_lines(bad), max_line=10_000)
        assert [line for line, _ in refused.value.errors] == [2, 3, 4]
        assert all(isinstance(error, InputError) for _, error in refused.value.errors)
        assert len(await office.registrar.list_schedules(JobFilter(), limit=1_000)) == 300


async def test_a_change_is_carried_out_although_the_engine_keeps_changing_the_schedule(store: Store) -> None:
    async with office_on(store) as office:
        often = {**WORK, "schedule_id": "often", "cron_expr": "* * * * * *", "timezone": "UTC"}
        office.launchers["workflow"].then("often", *[Step.SUCCEED] * 3)
        await office.registrar.upsert_schedule(often)
        await office.work()
        for number in range(5):
            await office.until(NOON + number * SECOND + timedelta(milliseconds=1_500))
            await office.registrar.upsert_schedule({**often, "version": number})
        assert (await office.registrar.get_schedule("often"))["version"] == 4
        assert len(office.launchers["workflow"].started) == 5


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800", "", "a\nb"])
async def test_a_name_that_no_schedule_can_have_is_not_found(store: Store, name: str) -> None:
    async with office_on(store) as office:
        for call in (
            office.registrar.get_schedule(name),
            office.registrar.pause_schedule(name, True),
            run_now(office.registrar, name),
            runs_page(office.registrar, name, limit=1),
            why(office.registrar, name, "2026-01-01T00:00:00Z"),
        ):
            with pytest.raises(UnknownScheduleError):
                await call
        with pytest.raises(UnknownRunError):
            await take_feedback(office.registrar, name, Feedback("SUCCESS"))
        if "\0" in name:
            assert await office.registrar.list_schedules(JobFilter(search=name)) == []
            query = office.registrar.catalog.query
            for wanted in (AuditFilter(identity=name), AuditFilter(who=name)):
                assert await query.audits(wanted) == []


ODD: list[object] = [
    None, True, 0, -1, 10**30, 1e308, float("nan"), "", "x", "\0", "\ud800", "UTC", "@daily", "H * * * *",
    "1h", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "spread", {}, [], {1: 2}, {"kind": "callback"},
    {"mode": "around", "duration": "1h"}, {"concurrency": "allow", "overlap": "skip"}, {"suspend": True},
]  # fmt: skip


@law(300)
@given(st.dictionaries(st.sampled_from(list(SCHEDULE.words)), st.sampled_from(ODD), max_size=4))
def test_whatever_is_given_is_read_or_refused_and_what_is_read_can_be_shown(odd: dict[str, object]) -> None:
    try:
        wish = parse_schedule_spec({**HOURLY, **odd}, Rules(), schedule_id="new")
    except InvalidScheduleError:
        return
    job = create(wish.job, now=1000 * NOON_S, launcher=launcher_text_of(wish.settings))
    shown = schedule_view(FoundJob(job, 1000 * NOON_S), next_start(JobState(job), 1000 * NOON_S), None)
    assert shown["schedule_id"] == wish.job.identity
    assert len(preview_of(JobState(job), 1000 * NOON_S)) <= 5


async def test_a_schedule_that_goes_on_says_when_it_runs_next_and_not_what_it_missed(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(HOURLY)
        await office.registrar.pause_schedule("hourly", True)
        await office.until(NOON + timedelta(hours=5, minutes=30))
        answer = await office.registrar.pause_schedule("hourly", False)
        assert answer["next_run_at"] == "2026-01-01T18:00:00Z"


@pytest.mark.parametrize("blank", [b"\n", b" " * 9_000 + b"\n"])
async def test_a_bulk_request_ends_after_many_blank_lines(store: Store, blank: bytes) -> None:
    taken = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(100_000):
            taken += 1
            yield blank

    async with office_on(store) as office:
        with pytest.raises(InvalidLinesError, match="leave them out"):
            await upsert_lines(office.registrar, chunks(), max_line=10_000)
    assert taken <= 1_001


async def test_a_bulk_request_may_have_blank_lines(store: Store) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"\n" * 900
            yield json.dumps({**HOURLY, "schedule_id": f"s{number}"}).encode() + b"\n\r\n"

    async with office_on(store) as office:
        assert await upsert_lines(office.registrar, chunks(), max_line=10_000) == (3, 1)
