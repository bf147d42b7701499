"""Each reading that changes a formula is shown by a small trace on which it differs from the letter."""

import pytest

from kron.theory import Status, Task, Trace, Witnesses, check
from kron.theory.attribution import attributed
from kron.theory.axioms import evaluate
from kron.theory.bound import size_of
from kron.theory.world import TraceWorld
from tests.theory.notation import EVERY, computed, trace

TIGHT = Witnesses(a=0, b=2, t_lag=1)
PASSED, FAILED = Status.PASSED, Status.FAILED

DIFFERENCES = [
    pytest.param("S1", "IS IEs SS SE Due IS IEs Min RS", PASSED, FAILED, id="1 a due survives a restart"),
    pytest.param("S1", "IS SS IEs SE Due RS", FAILED, PASSED, id="2 stopped while it initialized"),
    pytest.param("EA7", "IS IEs SS#1 SS#2 SE#1 SE#2", PASSED, FAILED, id="3 two stops"),
    pytest.param("EA7", "IS#1 IS#2 IEf#2 IEs#1", PASSED, FAILED, id="3 a second initialize is refused"),
    pytest.param("S5", "IS IEs IS IEf Due RS", PASSED, FAILED, id="4 refused while running"),
    pytest.param("S5", "IS IEs SS IS IEf SE", PASSED, FAILED, id="4 refused while stopping"),
    pytest.param("S6", "IS IEs IS IEs", FAILED, PASSED, id="5 two successes"),
    pytest.param("S6", "IS IEs Crash Crash", PASSED, FAILED, id="5 two crashes"),
    pytest.param(
        "S1", "Min+Due:a+Due:b IS=AB IEs C RS:a REs:a RS:b", PASSED, FAILED, id="9 two tasks due at boot"
    ),
    pytest.param("S1", "IS IEs Due RS REf Due RS REs RetryDue RS", FAILED, PASSED, id="10 a stale retry"),
    pytest.param("S1", "IS IEs Due RS Crash IS IEs RS", PASSED, FAILED, id="11 an orphan is started again"),
    pytest.param("S2", "IS IEs Due RS REs SS SE IS=A2 IEs RS REs", FAILED, PASSED, id="12 an override"),
    pytest.param(
        "S1", "IS IEs SS SE Due Min IS IEs C RS", PASSED, FAILED, id="13 a first due missed while down"
    ),
]


@pytest.mark.parametrize(("axiom", "text", "kron", "literal"), DIFFERENCES)
def test_a_reading_differs_from_the_letter(axiom: str, text: str, kron: Status, literal: Status) -> None:
    for reading, expected in (("kron", kron), ("literal", literal)):
        assert check(trace(text), reading=reading)[axiom].status is expected
        assert evaluate(trace(text), reading=reading)[axiom][0] is expected


def test_reading_3_a_call_waits_for_its_own_end() -> None:
    """L2 by the letter takes the refusal of another call with the same list for the end."""
    text = "IS#1 IS#2 IEf#2 C C"
    assert check(computed(text), TIGHT)["L2"].status is FAILED
    assert check(computed(text), TIGHT, reading="literal")["L2"].status is PASSED


def test_reading_3_a_stop_waits_for_an_open_initialize() -> None:
    waiting = "IS SS C C C C"
    assert check(computed(waiting), TIGHT)["L3"].status is PASSED
    assert check(computed(f"{waiting} IEf C C C"), TIGHT)["L3"].status is FAILED


def test_reading_3_the_longest_list_since_the_stop_counts() -> None:
    """While the stop waits for a run, an initialize() with a longer list is refused: that list counts."""
    begun = "IS IEs Due RS SS IS#9=AB IEf#9 REs"
    longer = next(event.tasks for event in list(trace(begun))[5].events)
    assert longer is not None
    allowed = size_of(longer.bits, 7)
    for more, status in ((allowed - 1, Status.INCONCLUSIVE), (allowed, FAILED)):
        text = f"{begun} " + "C " * more
        assert check(computed(text), Witnesses(1, 0, 0))["L3"].status is status


def test_reading_7_a_second_initialize_changes_nothing() -> None:
    report = check(trace("IS IEs Due IS IEf RS REs"))
    assert report.conforms


def test_reading_8_no_start_before_the_success_or_after_the_stop() -> None:
    assert check(trace("IS Due RS IEs"))["S1"].status is FAILED
    assert check(trace("IS IEs Due SS RS REs SE"))["S1"].status is FAILED
    assert check(trace("IS IEs Due RS SS REs SE")).conforms


def world(text: str, *, kron: bool) -> TraceWorld:
    subject = trace(text)
    positions = list(subject)
    if not kron:
        positions = list(attributed(positions))
    return TraceWorld(subject.header, positions, kron=kron)


def test_reading_11_a_run_is_orphaned_by_one_crash_only() -> None:
    text = "IS IEs Due RS Crash Crash"
    task = Task("a", EVERY, 5)
    assert world(text, kron=True).orphaned(task) == [False] * 4 + [True, False]
    assert world(text, kron=False).orphaned(task) == [False] * 4 + [True, True]


def test_reading_11_a_run_that_ended_is_not_orphaned() -> None:
    task = Task("a", EVERY, 5)
    assert not any(world("IS IEs Due RS REs Crash", kron=True).orphaned(task))


def test_reading_12_a_start_under_the_old_tuple_settles_the_new_one() -> None:
    text = "IS IEs Due RS REs SS SE IS=A2 IEs RS"
    assert check(trace(text))["S1"].position == 9
    new = Task("a", "0 * * * *", 5)
    assert not any(world(text, kron=True).due_pending(new)[3:])
    assert all(world(text, kron=False).due_pending(new)[2:9])


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param("IS IEs Due~* RS REs Due~0 SS SE IS=A2 IEs RS REs", PASSED, id="the new one was due"),
        pytest.param("IS IEs Due~* RS REs Due~7 SS SE IS=A2 IEs RS REs", FAILED, id="another was"),
        pytest.param("IS IEs Due RS REs SS SE IS=NONE IEs SS SE IS IEs Due RS REs", PASSED, id="it left"),
        pytest.param("IS IEs Due RS REs Due~* SS SE IS=A2 IEs RS REs", FAILED, id="only the old one was due"),
    ],
)
def test_reading_12_what_lets_a_task_succeed_again(text: str, status: Status) -> None:
    assert check(trace(text))["S2"].status is status
    assert evaluate(trace(text))["S2"][0] is status


def test_reading_12_a_due_of_a_tuple_that_started_in_between_counts() -> None:
    """The old tuple was due and registered at the failed start; its override may then succeed by retry."""
    text = "IS=A2 IEs Due~0 RS REs SS SE IS IEs Due~* RS REf SS SE IS=A2 IEs RetryDue RS REs"
    assert check(trace(text))["S2"].status is PASSED


def test_reading_10_an_override_withdraws_a_retry() -> None:
    expired = "IS IEs Due RS REf RetryDue@9 SS SE"
    assert check(trace(f"{expired} IS IEs RS"))["S1"].status is PASSED
    assert check(trace(f"{expired} IS=SLOW IEs RS"))["S1"].status is FAILED
    assert check(trace(f"{expired} IS=NOW IEs RS"))["S1"].status is PASSED


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param("IS IEs Due RS REf@10 RS@14", FAILED, id="too early"),
        pytest.param("IS IEs Due RS REf@10 RS@15", PASSED, id="in time"),
        pytest.param("IS=NOW IEs Due RS REf@10 RS@10", PASSED, id="no delay, the same instant"),
        pytest.param("IS IEs Due RS REf@10 SS SE IS=SLOW IEs RS@20", FAILED, id="withdrawn by an override"),
        pytest.param("IS=SLOW IEs Due RS REf@10 SS SE IS IEs RS@20", PASSED, id="brought forward"),
        pytest.param("IS=SLOW IEs Due RS REf@10 SS SE IS IEs RS@14", FAILED, id="not far enough"),
        pytest.param("IS IEs Due RS REf@10 Due RS REs RS@20", FAILED, id="withdrawn by a newer run"),
        pytest.param("IS IEs Due RS REf SS SE IS=NONE IEs SS SE Min IS IEs RS@30", FAILED, id="forgotten"),
    ],
)
def test_reading_10_a_derived_retry_follows_the_registered_delay(text: str, status: Status) -> None:
    subject = trace(text, derive=["RetryDue"])
    assert check(subject)["S1"].status is status
    assert evaluate(subject)["S1"][0] is status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param("IS@10 IEs RS@20", PASSED, id="due in the minute it comes in"),
        pytest.param("IS@10 IEs RS@65", PASSED, id="due when the next minute begins"),
        pytest.param("IS@10 IEs RS@20 REs RS@30", FAILED, id="once a minute"),
        pytest.param("IS@10 IEs RS@20 REs RS@60", PASSED, id="the next minute"),
        pytest.param("IS@10 IEs RS@20 REs RS@3000 REs RS@3001", FAILED, id="one start for many minutes"),
        pytest.param("IS=A2@60 IEs RS@70", FAILED, id="not due in this minute"),
        pytest.param("IS=A2@60 IEs RS@3600", PASSED, id="due at the hour"),
        pytest.param("IS=A2@60 IEs RS@3599", FAILED, id="a second too early"),
        pytest.param("IS@10 IEs RS@20 REs SS SE@3650 IS=A2 IEs RS", PASSED, id="an override that was due"),
        pytest.param("IS@10 IEs RS@3620 REs SS SE@3650 IS=A2 IEs RS", FAILED, id="and was started since"),
        pytest.param("IS@10 IEs RS@20 REs SS SE@90 IS=A2 IEs RS", FAILED, id="an override not yet due"),
        pytest.param("IS@10 IEs SS SE Crash@400 IS IEs RS", PASSED, id="due while it was down"),
        pytest.param(
            "IS@10 IEs RS@3600 REs SS SE@3650 IS=A2 IEs RS", FAILED, id="an override due at the very start"
        ),
        pytest.param("IS@10 IEs@200 RS@210", PASSED, id="due in the last of many minutes of initialize()"),
        pytest.param("IS=A2@10 IEs@3700 RS@3710", FAILED, id="not due in the last of them"),
        pytest.param("IS#1@10 IS#2=NONE IEs#1+IEs#2 RS@65", PASSED, id="two lists registered at once"),
    ],
)
def test_derived_dues_follow_the_calendar(text: str, status: Status) -> None:
    subject = trace(text, derive=["MinuteStart", "Due", "RetryDue"], timezone="UTC")
    assert check(subject)["S1"].status is status
    assert evaluate(subject)["S1"][0] is status


@pytest.mark.parametrize(("zone", "status"), [("Asia/Kathmandu", PASSED), ("UTC", FAILED)])
def test_derived_dues_follow_the_zone(zone: str, status: Status) -> None:
    """In Nepal the hour begins a quarter past that of UTC."""
    hour = 1_767_225_600  # 2026-01-01T00:00:00Z
    text = f"IS=A2@{hour + 60} IEs RS@{hour + 900}"
    assert check(trace(text, derive=["MinuteStart", "Due"], timezone=zone))["S1"].status is status


def test_reading_17_a_stop_that_had_to_wait_is_judged() -> None:
    text = "IS IEs Due RS SS REs C C C"
    assert check(computed(text), TIGHT)["L3"].status is FAILED
    assert check(computed(text), TIGHT, reading="literal")["L3"].status is PASSED


def test_reading_21_nothing_finite_decides_fairness() -> None:
    for reading in ("kron", "literal"):
        report = check(Trace.from_jsonl(['{"kron_trace": 1, "unit": "step"}']), reading=reading)
        assert {report[axiom].status for axiom in ("EA4", "EA5")} == {Status.INCONCLUSIVE}
