"""Why, asked of a store: every question about a period has an answer, on every store."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from kron.app.query import Query
from kron.core.errors import InputError, InvalidInstantError, UnknownJobError
from kron.core.job.job import Job
from kron.core.plan.why import Explanation
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Step
from tests.engine_stage import DAY, MINUTE, NOON, SECOND, SPACE, Stage, job_of, stage_on

# The day before the clocks go forward in Berlin.
START = datetime(2026, 3, 28, 12, tzinfo=UTC)
HANGS = [Step.HANG] * 3


def at(clock: str) -> datetime:
    return START.replace(hour=int(clock[:2]), minute=int(clock[3:]))


def berlin(identity: str, **fields: object) -> Job:
    return Job.from_dict(
        {"identity": identity, "schedule": "30 2 * * *", "timezone": "Europe/Berlin", **fields}
    )


async def ask(stage: Stage, identity: str, when: str | datetime) -> Explanation:
    return await Query(stage.store, SPACE, now=lambda: stage.now).why(identity, when)


async def told(stage: Stage) -> None:
    """Let everything happen that can happen to a period."""
    half_past = "30 12 * * *"
    for script, jobs in [
        ([], [job_of("ran", half_past), job_of("lasting", half_past)]),
        ([Step.FAIL], [job_of("failed", half_past), job_of("retried", half_past, retry_delay="10s")]),
        ([Step.REFUSE], [job_of("refused", half_past)]),
        (
            HANGS,
            [
                job_of("runs", half_past),
                job_of("lost", half_past, run_timeout="1m"),
                job_of("skips", "30,31 12 * * *", overlap="skip"),
                job_of("queues", "30-32 12 * * *", overlap="queue", queue_max=1),
                job_of("buffers", "30-32 12 * * *", overlap="buffer_one"),
                job_of("replaces", "30,31 12 * * *", overlap="replace"),
            ],
        ),
        (
            [],
            [
                job_of("finishes", "30,31 12 * * *", remaining=1),
                job_of("bounded", start_at="2026-03-28T12:30:00Z", end_at="2026-03-28T12:31:00Z"),
                job_of("down", "* * * * *", catchup="none"),
                job_of("once", "* * * * *", catchup="once"),
                job_of("limited", "40-50 * * * *", catchup="all", max_catchup=1),
                job_of("late", "45 12 * * *", deadline="0s"),
                job_of("spreads", "45 12 * * *", catchup="spread"),
                job_of("paused", "50 * * * *"),
                job_of("edited", half_past),
                job_of("deleted", half_past),
            ],
        ),
    ]:
        await stage.add(*jobs, script=script)
    ahead = {"schedule": "0 15 * * *", "window": {"mode": "before", "duration": "2h"}}
    never = {"constraints": {"avoid": {"hours": "0-23"}}}
    await stage.add(
        Job.from_dict({"identity": "windowed", **ahead, "policy": {"jitter_ms": 500}}),
        Job.from_dict({"identity": "withdrawn", **ahead, "seed": {"salt": "f"}}),
        Job.from_dict({"identity": "cancelled", **ahead, "seed": {"salt": "f"}}),
        Job.from_dict({"identity": "nowhere", "schedule": half_past, **never}),
        Job.from_dict({"identity": "away", "schedule": "45 12 * * *", **never}),
        berlin("gap"),
        berlin("gap next", dst_gap="next"),
        berlin("last of two", dst_repeat="last"),
    )
    await stage.run()
    await stage.until(at("12:40") + 30 * SECOND)
    await stage.suspend(30 * MINUTE)
    await stage.until(at("13:30"))
    await stage.edit(job_of("edited", "0 0 * * *"))
    await stage.edit(job_of("withdrawn", "0 0 * * *"))
    await stage.delete("deleted")
    await stage.delete("cancelled")
    await stage.pause("paused")
    await stage.until(at("14:00"))


# Who is asked, about when, what came of it, and the last links of the chain.
QUESTIONS = [
    ("ran", "12:30", "executed", "recorded started ended"),
    ("retried", "12:30", "executed", "recorded attempt started ended"),
    ("failed", "12:30", "executed", "recorded started ended"),
    ("refused", "12:30", "executed", "recorded started ended"),
    ("lost", "12:30", "executed", "recorded started ended"),
    ("runs", "12:30", "executed", "recorded started"),
    ("skips", "12:31", "skipped", "recorded blocked active"),
    ("queues", "12:31", None, "recorded blocked queued"),
    ("queues", "12:32", "skipped", "recorded blocked queue_full"),
    ("buffers", "12:31", "skipped", "recorded blocked blocked coalesced"),
    ("replaces", "12:30", "executed", "started ended blocked replaced"),
    ("replaces", "12:31", "executed", "recorded started"),
    ("finishes", "12:31", None, "nominal_time finished"),
    ("bounded", "12:29", None, "schedule no_period"),
    ("bounded", "12:31", "executed", "started ended"),
    ("bounded", "12:32", None, "schedule no_period"),
    ("down", "12:45", "missed", "clock_jump recorded_together catchup_none"),
    ("once", "12:45", "missed", "recorded_together superseded"),
    ("once", "13:09", "executed", "started ended"),
    ("limited", "12:42", "missed", "recorded_together catchup_limit"),
    ("limited", "12:50", "executed", "started ended"),
    ("late", "12:45", "missed", "clock_jump recorded deadline"),
    ("spreads", "12:45", "executed", "started ended"),
    ("nowhere", "12:30", "unschedulable", "unschedulable recorded no_candidate"),
    ("away", "12:45", "unschedulable", "clock_jump recorded no_candidate"),
    ("windowed", "15:00", "executed", "chosen_time jitter recorded started ended"),
    ("paused", "12:50", "executed", "started ended"),
    ("paused", "13:50", None, "nominal_time paused"),
    ("edited", "12:30", "executed", "started ended"),
    ("edited", "13:30", None, "schedule no_period"),
    ("edited", "2026-03-29T00:00Z", None, "nominal_time to_come"),
    ("withdrawn", "15:00", "skipped", "chosen_time recorded edit edited"),
    ("deleted", "12:30", "executed", "started ended"),
    ("deleted", "2026-03-29T12:30Z", None, "nominal_time deleted"),
    ("cancelled", "15:00", "skipped", "chosen_time recorded deleted"),
    ("ran", "2026-03-29T12:30Z", None, "nominal_time to_come"),
    ("ran", "2026-03-27T12:30Z", None, "nominal_time before_creation"),
    ("nowhere", "2026-03-27T12:30Z", None, "unschedulable before_creation"),
    ("ran", "2026-03-28T12:30:01Z", None, "schedule no_period"),
    ("ran", "2026-03-28T13:30+01:00", "executed", "started ended"),
    ("ran", "2026-03-28T12:30", "executed", "started ended"),
    ("gap", "2026-03-29T01:30Z", None, "schedule dst_gap no_period"),
    ("gap", "2026-03-29T02:30", None, "schedule dst_gap"),
    ("gap", "2026-03-29T02:31", None, "schedule no_period"),
    ("gap", "2026-03-30T02:30", None, "nominal_time to_come"),
    ("gap", "2026-10-25T02:30", None, "nominal_time dst_repeat to_come"),
    ("gap next", "2026-03-29T02:30", None, "nominal_time dst_moved to_come"),
    ("gap next", "2026-03-29T02:31", None, "schedule no_period"),
    ("last of two", "2026-10-25T02:30", None, "nominal_time dst_repeat to_come"),
]


async def test_every_period_has_an_answer(store: Store) -> None:
    async with stage_on(store, START) as stage:
        await told(stage)
        for identity, when, outcome, last in QUESTIONS:
            answer = await ask(stage, identity, when if "T" in when else at(when))
            codes = " ".join(fact.code for fact in answer.facts)
            assert (answer.outcome, codes[-len(last) :]) == (outcome, last), (identity, when, codes)
            assert len(answer.sentences) == len(answer.facts)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    store = SqliteStore()
    async with stage_on(store, START) as made:
        yield made
    await store.close()


async def test_an_answer_can_be_handed_to_programs(stage: Stage) -> None:
    await stage.add(job_of("job", "30 12 * * *"), script=[Step.FAIL])
    await stage.run()
    await stage.until(at("13:00"))
    assert (await ask(stage, "job", "2026-03-28T12:30:00Z")).to_dict() == {
        "identity": "job",
        "period_id": "2026-03-28T12:30:00Z",
        "outcome": "executed",
        "code": "ended",
        "headline": "failed: failed by the script",
        "remedy": None,
        "facts": [
            {"code": "schedule", "sentence": 'the schedule is "30 12 * * *" in UTC', "at": None, "links": []},
            {
                "code": "nominal_time",
                "sentence": "its nominal time is 2026-03-28T12:30:00Z",
                "at": "2026-03-28T12:30:00.000Z",
                "links": [],
            },
            {"code": "recorded", "sentence": "recorded", "at": "2026-03-28T12:30:00.000Z", "links": []},
            {
                "code": "started",
                "sentence": "attempt 1: started on schedule",
                "at": "2026-03-28T12:30:00.000Z",
                "links": [],
            },
            {
                "code": "ended",
                "sentence": "failed: failed by the script",
                "at": "2026-03-28T12:30:00.000Z",
                "links": [],
            },
        ],
    }


@pytest.mark.parametrize(
    ("fields", "wall", "instant", "sentence"),
    [
        pytest.param(
            {}, "2026-03-29T02:30", None,
            "clocks in Europe/Berlin go forward from 2026-03-29 02:00 to 03:00, so 02:30 does not exist; "
            'dst_gap "next" runs it at 03:00; '
            "the nearest are 2026-03-28T01:30:00Z and 2026-03-30T00:30:00Z",
            id="skipped",
        ),
        pytest.param(
            {"dst_gap": "next"}, "2026-03-29T02:30", "2026-03-29T01:00:00Z",
            "clocks in Europe/Berlin go forward from 2026-03-29 02:00 to 03:00, so 02:30 does not exist, "
            'and its period is here (dst_gap "next")',
            id="moved",
        ),
        pytest.param(
            {}, "2026-10-25T02:30", "2026-10-25T00:30:00Z",
            "clocks in Europe/Berlin go back from 2026-10-25 03:00 to 02:00, so 02:30 occurs twice, "
            'and this is the first; dst_repeat "first" or "last" runs it once',
            id="the first of two",
        ),
        pytest.param(
            {"dst_repeat": "last"}, "2026-10-25T02:30", "2026-10-25T01:30:00Z",
            "clocks in Europe/Berlin go back from 2026-10-25 03:00 to 02:00, so 02:30 occurs twice, "
            'and this is the second; dst_repeat "last" runs the second only',
            id="the second of two, which alone is a period",
        ),
        pytest.param(
            {"schedule": "30 0 30 12 *", "timezone": "Pacific/Apia"}, "2011-12-30T00:30", None,
            "clocks in Pacific/Apia went forward from 2011-12-30 00:00 to 2011-12-31 00:00, "
            'so 00:30 did not exist; dst_gap "next" runs it at 00:00; '
            "the nearest are 2010-12-30T10:30:00Z and 2012-12-29T10:30:00Z",
            id="a whole day is skipped",
        ),
    ],
)  # fmt: skip
async def test_a_wall_time_is_asked_in_the_zone_of_the_job(
    stage: Stage, fields: dict[str, object], wall: str, instant: str | None, sentence: str
) -> None:
    await stage.add(berlin("job", **fields))
    answer = await ask(stage, "job", wall)
    assert answer.to_dict()["period_id"] == instant
    assert sentence in answer.sentences


async def test_a_wall_time_is_asked_of_the_definition_that_held_then(stage: Stage) -> None:
    await stage.add(berlin("job"))
    await stage.until(START + 2 * DAY)
    await stage.edit(berlin("job", schedule="45 2 * * *"))
    for wall, code in (("2026-03-29T02:30", "dst_gap"), ("2026-03-29T02:45", "no_period")):
        answer = await ask(stage, "job", wall)
        assert answer.code == code
        assert (
            answer.sentences[0] == 'the schedule is "30 2 * * *" in Europe/Berlin, as defined before edit 1'
        )


async def test_what_was_removed_with_old_history_is_said_to_be(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + 2 * MINUTE + SECOND)
        await stage.edit(job_of(schedule="*/2 * * * *"))
        await stage.until(NOON + 8 * MINUTE + SECOND)
        await stage.prune()
        answers = [await ask(stage, "job", NOON + number * MINUTE) for number in (1, 2, 4, 5, 8)]
        # The definition of the first two is gone as well; under the present one the fourth is no period.
        assert [answer.code for answer in answers] == ["forgotten"] * 3 + ["no_period", "ended"]
        assert answers[0].sentences != answers[2].sentences


async def test_a_period_nobody_has_looked_at_is_overdue(stage: Stage) -> None:
    await stage.add(job_of())
    await stage.advance(2 * MINUTE)
    assert (await ask(stage, "job", at("12:01"))).code == "overdue"
    await stage.run()
    await stage.engine.stop()
    stopped_at = stage.clock.now()
    await stage.advance(2 * MINUTE)
    outage = f"worker me was stopped at {stopped_at:%Y-%m-%dT%H:%M:%SZ}, and no worker has run since"
    answer = await ask(stage, "job", at("12:04"))
    assert answer.headline == f"due, and not processed by a worker yet: {outage}"


@pytest.mark.parametrize(
    ("identity", "when", "error"),
    [
        pytest.param("nobody", "2026-03-28T12:30:00Z", UnknownJobError, id="no such job"),
        pytest.param("job", "yesterday", InvalidInstantError, id="no such time"),
        pytest.param("job", "2026-03-28T12:30:00.5Z", InvalidInstantError, id="no whole second"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    stage: Stage, identity: str, when: str, error: type[InputError]
) -> None:
    await stage.add(job_of())
    with pytest.raises(error):
        await ask(stage, identity, when)
