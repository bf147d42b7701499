"""The comparison of records with the ledger detects planted faults: losses, duplicates, wrong reasons."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import Policy
from kron.core.plan.record import AttemptRecord, RangeRecord, Result, RunRecord, RunStatus, key_of
from tests.faults.comparison import Evidence, Life, faults_of, fenced
from tests.faults.ledger import Line

# A job every ten seconds, born at 1,000 s. Its first owner is killed at 1,034 s; it has no
# owner until 1,134 s; then everything older than a minute was missed. The last period is that of 1,150 s.
NAME = "job"
FIRST = Life(1, 1_000_000, 1_000_000, 1_034_000)
SECOND = Life(2, 1_134_000, 1_134_000)
PAUSE = timedelta(seconds=1)
Plant = Callable[[Evidence], Evidence]


def ran(
    time: int,
    token: int,
    *,
    at: int | None = None,
    reason: Reason = Reason.DUE,
    attempt: int = 1,
    result: Result = Result.SUCCESS,
) -> RunRecord:
    started = 1000 * time if at is None else at
    return RunRecord(
        key=key_of(NAME, time),
        identity=NAME,
        nominal_time=time,
        fire_time=1000 * time,
        status=RunStatus.SUCCESS if result is Result.SUCCESS else RunStatus.FAILED,
        reason=reason,
        created_at=started,
        epoch=1,
        attempt=attempt,
        token=token,
        started_at=started,
        ended_at=started + 500,
        result=result,
    )


def dropped(time: int, status: RunStatus, reason: Reason, at: int) -> RunRecord:
    return RunRecord(key_of(NAME, time), NAME, time, 1000 * time, status, reason, at, 1)


def lines_of(row: RunRecord, attempt: int | None = None) -> list[Line]:
    begin = Line("begin", NAME, row.key, attempt or row.attempt, row.token, row.started_at or 0)
    return [begin, begin._replace(what="end" if row.result is Result.SUCCESS else "raise")]


def good(catchup: str = "once", **policy: Any) -> Evidence:
    """Return a story without faults: two runs, an outage, a counted record, one caught up, late ones."""
    line = 1_134_000
    rows = [ran(1_000, 1), ran(1_010, 1), ran(1_020, 1), ran(1_030, 1)]
    rows += [ran(1_070, 2, at=line, reason=Reason.CAUGHT_UP)]
    rows += [ran(time, 2, at=line) for time in range(1_080, 1_131, 10)]
    rows += [ran(1_140, 2), ran(1_150, 2)]
    shared = RangeRecord(NAME, 1_040, 1_060, 3, Outcome.MISSED, Reason.SUPERSEDED, 1, line)
    return Evidence(
        identity=NAME,
        every_s=10,
        policy=Policy(**{"overlap": "allow", "catchup": catchup, "deadline": None, **policy}),
        born_at=1_000_000,
        until=1_155,
        lives=[FIRST, SECOND],
        rows=rows,
        ranges=[shared],
        lines=[line for row in rows for line in lines_of(row)],
    )


def with_row(evidence: Evidence, new: RunRecord, lines: list[Line] | None = None) -> Evidence:
    """Return the story with another row for its period, and other lines in the ledger for it."""
    rows = [new if row.key == new.key else row for row in evidence.rows]
    kept = [line for line in evidence.lines if line.key != new.key or lines is None]
    return replace(evidence, rows=rows, lines=[*kept, *(lines or [])])


def test_a_story_without_faults_has_none() -> None:
    assert faults_of(good()) == []


def an_orphan(result: Result = Result.ORPHANED, attempt: int = 1) -> Evidence:
    """Return the story in which the run of 1,030 s died with its owner."""
    lost = ran(1_030, 1, result=result, attempt=attempt)._replace(ended_at=1_134_000)
    return with_row(good(), lost, lines_of(lost)[:1])


def a_restart() -> Evidence:
    """Return the story in which that run is started again."""
    again = ran(1_030, 2, attempt=2, reason=Reason.RESTARTED)._replace(started_at=1_134_000)
    first = AttemptRecord(again.key, 1, 1, 1_030_000, 1_134_000, Result.ORPHANED, None, None)
    begun = Line("begin", NAME, again.key, 1, 1, 1_030_000)
    evidence = with_row(good(on_orphan="restart"), again, [begun, *lines_of(again)])
    return replace(evidence, attempts={again.key: [first]})


def a_retry(delay: int = 1_000) -> Evidence:
    """Return the story in which the run of 1,010 s fails at first."""
    again = ran(1_010, 1, attempt=2, reason=Reason.RETRY)._replace(started_at=1_010_500 + delay)
    first = AttemptRecord(again.key, 1, 1, 1_010_000, 1_010_500, Result.FAILED, None, None)
    begun = Line("begin", NAME, again.key, 1, 1, 1_010_000)
    evidence = with_row(
        good(retry_delay=PAUSE), again, [begun, begun._replace(what="raise"), *lines_of(again)]
    )
    return replace(evidence, attempts={again.key: [first]})


def a_skip(reason: Reason = Reason.ACTIVE, **policy: Any) -> Evidence:
    """Return the story in which the period of 1,020 s gives way to the one before."""
    evidence = good(overlap="skip", **policy)
    longer = ran(1_010, 1)._replace(ended_at=1_021_000)
    evidence = with_row(evidence, longer)
    return with_row(evidence, dropped(1_020, RunStatus.SKIPPED, reason, 1_020_000), [])


def a_second_delivery() -> Evidence:
    """Return the story in which the run of 1,030 s was delivered by both owners, and executed once."""
    run = ran(1_030, 2)
    begun = Line("begin", NAME, run.key, 1, 1, 1_030_000)
    delivered = [begun._replace(what="delivered"), begun._replace(what="delivered", token=2)]
    evidence = with_row(good(), run, [*delivered, begun, begun._replace(what="end")])
    return replace(evidence, honours=True)


@pytest.mark.parametrize("make", [an_orphan, a_restart, a_retry, a_skip, a_second_delivery])
def test_what_may_happen_is_no_fault(make: Callable[[], Evidence]) -> None:
    assert faults_of(make()) == []


def without(evidence: Evidence, time: int) -> Evidence:
    return replace(evidence, rows=[row for row in evidence.rows if row.nominal_time != time])


def more(evidence: Evidence, *rows: RunRecord) -> Evidence:
    return replace(evidence, rows=[*evidence.rows, *rows])


def said(evidence: Evidence, *lines: Line) -> Evidence:
    return replace(evidence, lines=[*evidence.lines, *lines])


def unsaid(evidence: Evidence, what: str, time: int) -> Evidence:
    key = key_of(NAME, time)
    return replace(evidence, lines=[line for line in evidence.lines if (line.what, line.key) != (what, key)])


@pytest.mark.parametrize(
    ("evidence", "fault"),
    [
        pytest.param(without(good(), 1_020), "1020 has no record", id="a lost period"),
        pytest.param(replace(good(), ranges=[]), "1050 has no record", id="a lost counted record"),
        pytest.param(more(good(), ran(1_050, 1)), "1050 has 2 records", id="a period twice"),
        pytest.param(more(good(), ran(1_015, 1)), "1015 is no period", id="a period out of nowhere"),
        pytest.param(
            replace(good(), ranges=[good().ranges[0]._replace(periods=4)]), "are 3 periods, not 4", id="count"
        ),
        pytest.param(with_row(good(), ran(1_010, 1)._replace(is_open=1)), "1010 is still", id="open"),
        pytest.param(
            with_row(good(), dropped(1_010, RunStatus.PENDING, Reason.QUEUED, 1_010_000)),
            "1010 is still PENDING",
            id="pending",
        ),
        pytest.param(
            with_row(good(), dropped(1_100, RunStatus.MISSED, Reason.SUPERSEDED, 1_134_000), []),
            "1100 should not have been missed",
            id="late, but not missed",
        ),
        pytest.param(
            with_row(good(), dropped(1_070, RunStatus.MISSED, Reason.SUPERSEDED, 1_134_000), []),
            "1070 should not have been missed",
            id="the newest of the missed",
        ),
        pytest.param(
            replace(good(), ranges=[], rows=[*good().rows, *(ran(t, 2, at=1_134_000) for t in (1040, 1050))]),
            "1040 should have been missed, and is SUCCESS",
            id="run although missed",
        ),
        pytest.param(
            replace(good(), ranges=[good().ranges[0]._replace(reason=Reason.CATCHUP_NONE)]),
            "1050 should have been missed",
            id="missed by another policy",
        ),
        pytest.param(good("none"), "1070 should have been missed", id="none catches up with nothing"),
        pytest.param(good("all"), "1040 was missed for a wrong reason", id="all catches up with all"),
        pytest.param(
            good(deadline=timedelta(seconds=4)), "1120 ran 14 s late", id="run although past its deadline"
        ),
        pytest.param(
            with_row(
                good(deadline=timedelta(60)), dropped(1_020, RunStatus.MISSED, Reason.DEADLINE, 1_020_900)
            ),
            "1020 was dropped by a deadline 0 s later",
            id="dropped although in time",
        ),
        pytest.param(
            replace(a_skip(), policy=good().policy),
            "1020 was skipped for a wrong reason (active)",
            id="skipped although overlaps are allowed",
        ),
        pytest.param(
            with_row(a_skip(), ran(1_010, 1)), "1020 was skipped although nothing was active", id="not active"
        ),
        pytest.param(
            with_row(
                good(overlap="queue"), dropped(1_020, RunStatus.SKIPPED, Reason.QUEUE_FULL, 1_020_000), []
            ),
            "1020 was skipped although the queue had room",
            id="room in the queue",
        ),
        pytest.param(
            with_row(
                good(overlap="buffer_one"), dropped(1_150, RunStatus.SKIPPED, Reason.COALESCED, 1_150_000), []
            ),
            "1150 was the newest and was skipped",
            id="the newest gives way",
        ),
        pytest.param(said(good(), lines_of(ran(1_010, 1))[0]), "executed 2 times", id="executed twice"),
        pytest.param(
            unsaid(unsaid(good(), "begin", 1_020), "end", 1_020),
            "no such end in the ledger",
            id="not executed",
        ),
        pytest.param(unsaid(good(), "end", 1_020), "no such end in the ledger", id="it never ended"),
        pytest.param(
            said(good(), Line("begin", NAME, key_of(NAME, 1_050), 1, 1, 1_050_000)),
            "begin without a record",
            id="executed without a record",
        ),
        pytest.param(
            said(good(), Line("begin", NAME, key_of(NAME, 1_010), 2, 1, 1_010_000)),
            "attempt 2: begin without a record",
            id="another attempt without a record",
        ),
        pytest.param(
            with_row(good(), ran(1_010, 1), lines_of(ran(1_010, 1, at=1_009_999))),
            "executed before its time",
            id="too early",
        ),
        pytest.param(
            with_row(good(), ran(1_010, 1), lines_of(ran(1_010, 2))), "with the tokens [2], not 1", id="token"
        ),
        pytest.param(
            replace(an_orphan(), lives=[FIRST._replace(killed_at=None), SECOND]),
            "orphaned, and its owner was not killed",
            id="an orphan of nobody's",
        ),
        pytest.param(
            replace(a_restart(), policy=good().policy),
            "1030 was tried again after orphaned",
            id="not by rule",
        ),
        pytest.param(
            replace(a_restart(), attempts={}), "1030 has the attempts [2]", id="an attempt without a record"
        ),
        pytest.param(
            replace(a_retry(), policy=good().policy),
            "1010 was tried again after failed",
            id="no retry policy",
        ),
        pytest.param(a_retry(delay=999), "1010 was tried again before its delay was over", id="too soon"),
        pytest.param(
            replace(an_orphan(), policy=good(on_orphan="restart").policy),
            "1030 was not tried again after orphaned",
            id="not restarted",
        ),
        pytest.param(
            replace(a_second_delivery(), lives=[FIRST._replace(killed_at=None), SECOND]),
            "delivered again although no owner was killed",
            id="delivered again without a reason",
        ),
        pytest.param(
            said(a_second_delivery(), Line("delivered", NAME, key_of(NAME, 1_030), 1, 2, 1_140_000)),
            "delivered again by the same owner",
            id="delivered twice by one owner",
        ),
        pytest.param(
            said(a_second_delivery(), Line("begin", NAME, key_of(NAME, 1_030), 1, 2, 1_140_000)),
            "executed 2 times",
            id="a key that is not honoured",
        ),
    ],
)
def test_what_is_planted_is_found(evidence: Evidence, fault: str) -> None:
    assert [found for found in faults_of(evidence) if fault in found]


def test_two_at_once_are_found_unless_overlaps_are_allowed() -> None:
    begins = [line for line in good().lines if line.what == "begin"]
    ends = [line for line in good().lines if line.what == "end"]
    evidence = replace(good(), lines=[*begins, *ends])
    assert faults_of(evidence) == []
    found = faults_of(replace(evidence, policy=good(overlap="queue").policy))
    assert [fault for fault in found if "was under way" in fault]


def test_a_start_behind_the_fence_is_found() -> None:
    lines = [Line("begin", NAME, "a", 1, token, 0) for token in (1, 1, 2, 2)]
    assert fenced(lines) == []
    assert fenced([*lines, lines[0]]) == ["job: token 1 began after token 2"]
