"""Every axiom a finite trace can break is broken by hand, and found where and why it broke."""

import pytest

from kron.theory import Blame, Status, Witnesses, check
from kron.theory.axioms import evaluate
from kron.theory.liveness import LivenessBounds
from tests.theory.notation import computed, trace

UP = "IS IEs"
WORLD = "environment"
RUN = "Due RS REs"
TIGHT = Witnesses(a=0, b=2, t_lag=1)

CONFORMING = {
    "a": "IS IEs Due RS REs Due RS REf RetryDue@12 RS REs",
    "b": "IS IEs SS SE IS IEs Due RS REs",
    "c": "IS IEs Due RS Crash IS IEs RS REs",
}


@pytest.mark.parametrize("reading", ["kron", "literal"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_traces_of_the_theory_conform_in_both_readings(name: str, reading: str) -> None:
    report = check(computed(CONFORMING[name]), reading=reading)
    assert [finding.message for finding in report.failed] == []
    assert report.blame is None
    by_definition = evaluate(computed(CONFORMING[name]), reading=reading)
    assert [axiom for axiom, (status, _) in by_definition.items() if status is Status.FAILED] == []


def test_a_trace_with_a_crash_conforms_and_could_not_by_the_letter() -> None:
    """Trace c: by the letter the orphan is lost, because its task comes for the first time again."""
    assert check(computed(CONFORMING["c"])).conforms
    assert check(computed(CONFORMING["c"]), reading="literal")["S1"].status is Status.FAILED


@pytest.mark.parametrize("name", CONFORMING)
def test_the_traces_of_the_theory_keep_every_promise(name: str) -> None:
    report = check(computed(CONFORMING[name]), Witnesses(a=1, b=0, t_lag=0))
    assert {report[axiom].status for axiom in ("L1", "L2", "L3", "EA1", "EA2")} == {Status.PASSED}


def case(
    axiom: str, text: str, position: int, reason: str, *, blame: str = "scheduler", name: str = ""
) -> object:
    return pytest.param(axiom, text, position, reason, blame, id=f"{axiom} {name or reason}")


SAFETY = [
    case("EA3", f"{UP}=AB Due RS:a+RS:b", 3, "at one position", blame=WORLD, name="two starts"),
    case("EA3", f"{UP} Due RS REs+SS", 4, "at one position", blame=WORLD, name="an end and a stop"),
    case("EA3", "IS+IEs", 0, "at one position", blame=WORLD, name="a call and its end"),
    case("EA3", f"{UP} SS#1 SS#2 SE#1+SE#2", 4, "at one position", blame=WORLD, name="two stops' ends"),
    case("EA6", f"{UP} Due RS Crash REs", 5, "without a new start", blame=WORLD, name="an old run's end"),
    case("EA6", f"{UP} Due RS Crash IS IEs REf", 7, "without a new start", blame=WORLD, name="after restart"),
    case("EA6", f"{UP} Due RS Crash+REs", 4, "without a new start", blame=WORLD, name="with the crash"),
    case("EA7", f"{UP} REs", 2, '"a" ends and was not running', blame=WORLD, name="no run"),
    case("EA7", f"{UP} Due RS REs REs", 5, "was not running", blame=WORLD, name="an end twice"),
    case("EA7", "IEs", 0, "initialize() ends and was not called", blame=WORLD, name="no initialize"),
    case("EA7", "IS#1 IEf#2", 1, "initialize() ends and was not called", blame=WORLD, name="other call"),
    case("EA7", f"{UP} SE#7", 2, "stop() returns and was not called", blame=WORLD, name="no stop"),
    case("EA7", f"{UP} SS Crash SE", 4, "stop() returns", blame=WORLD, name="a stop after a crash"),
    case("S1", "RS", 0, "not registered", name="at the very beginning"),
    case("S1", f"{UP} RS", 2, "nothing is pending"),
    case("S1", f"{UP} Due RS:b", 3, '"b" starts and is not registered', name="another task"),
    case("S1", f"{UP} Due RS REs RS", 5, "nothing is pending", name="twice for one due"),
    case("S1", f"{UP} Due RS Due RS", 5, "while it is running"),
    case("S1", f"{UP} Due SS RS", 4, "not active", name="after stop() was called"),
    case("S1", f"{UP} Due SS SE RS", 5, "not active", name="after stop() returned"),
    case("S1", f"{UP} Due RS Crash RS", 5, "not active", name="after a crash"),
    case("S1", "IS Due RS IEs", 2, "not registered", name="while initializing"),
    case("S1", "Due Min IS IEs RS", 4, "nothing is pending", name="due before it was registered"),
    case("S1", f"{UP} Due RS REf RS", 5, "nothing is pending", name="before the delay has passed"),
    case("S2", f"{UP} {RUN} RS REs", 6, "succeeds twice", name="two runs for one due"),
    case("S2", f"{UP} {RUN} SS SE IS IEs RS REs", 10, "succeeds twice", name="over a restart"),
    case("S2", f"{UP} Due RS REs RS REf RetryDue RS REs", 9, "succeeds twice", name="a retry of too much"),
    case("S2", f"{UP} {RUN} SS SE IS=A2 IEs RS REs", 10, "succeeds twice", name="over an override"),
    case("S3", f"{UP} Due RS SS SE", 5, 'stop() returns while "a" runs', name="one run"),
    case("S3", "IS=AB IEs Due:a Due:b RS:a RS:b SS REs:a SE", 8, 'while "b" runs', name="one of two"),
    case("S3", "IS=AB IEs Due:a Due:b RS:a RS:b SS SE", 7, 'while "a" and "b" runs', name="both"),
    case("S3", f"{UP} Due RS SS#1 SS#2 SE#2 REs SE#1", 6, 'while "a" runs', name="the second stop"),
    case("S4", "IS=TWICE IEs", 1, "an invalid list was accepted", name="a name twice"),
    case("S4", "IS=BAD IEs", 1, "an invalid list was accepted", name="no expression"),
    case("S4", "IS=NEGATIVE IEs", 1, "an invalid list was accepted", name="a negative delay"),
    case("S4", "IS IEs SS SE IS=TWICE IEs", 5, "an invalid list was accepted", name="the second time"),
    case("S5", "IS IEf", 1, "a valid list was refused", name="at once"),
    case("S5", f"{UP} SS SE IS IEf", 5, "a valid list was refused", name="after a stop"),
    case("S5", f"{UP} Crash IS IEf", 4, "a valid list was refused", name="after a crash"),
    case("S5", "IS=TWICE IEf IS=NONE IEf", 3, "a valid list was refused", name="the empty list"),
    case("S6", f"{UP} IS IEs", 3, "succeeds again", name="twice"),
    case("S6", f"{UP} SS IS IEs SE", 4, "succeeds again", name="before stop() returned"),
    case("S6", "IS#1 IS#2 IEs#1 IEs#2", 3, "succeeds again", name="two calls at once"),
]  # fmt: skip


@pytest.mark.parametrize(("axiom", "text", "position", "reason", "blame"), SAFETY)
def test_a_violation_is_found_where_it_happens(
    axiom: str, text: str, position: int, reason: str, blame: str
) -> None:
    report = check(trace(text))
    finding = report[axiom]
    assert (finding.status, finding.position) == (Status.FAILED, position), finding
    assert reason in finding.message
    assert finding.formula
    assert report.verdict == "violates"
    assert report.blame == blame
    assert evaluate(trace(text))[axiom] == (Status.FAILED, position)


@pytest.mark.parametrize(("axiom", "text", "position", "reason", "blame"), SAFETY)
def test_one_position_less_does_not_show_the_violation(
    axiom: str, text: str, position: int, reason: str, blame: str
) -> None:
    before = " ".join(text.split()[:position])
    assert check(trace(before))[axiom].status is Status.PASSED


COMPUTE = [
    pytest.param("EA1", "C+IS C+IEs C+Crash", 2, id="EA1 a crash in the midst of work"),
    pytest.param("EA1", "C+IS Crash C+Crash", 2, id="EA1 the second of two"),
    pytest.param("EA1", "Crash+C", 0, id="EA1 at once"),
    pytest.param("EA2", "C+IS IEs", 1, id="EA2 a success without compute"),
    pytest.param("EA2", "C+IS C+IEs Due RS", 3, id="EA2 a start without compute"),
    pytest.param("EA2", "C+IS C+IEs SS", 2, id="EA2 a stop without compute"),
]


@pytest.mark.parametrize(("axiom", "text", "position"), COMPUTE)
def test_work_takes_compute_and_a_crash_none(axiom: str, text: str, position: int) -> None:
    subject = trace(text, compute=None)
    finding = check(subject)[axiom]
    assert (finding.status, finding.position) == (Status.FAILED, position)
    assert check(subject).blame is Blame.ENVIRONMENT


# With b = 2 and a lag of 1 three points of compute may pass; the fourth is one too many.
LIVENESS = [
    pytest.param("L1", f"{UP} Due C C C C", 6, 2, id="L1 a due and no start"),
    pytest.param("L1", f"{UP} Due RS REf RetryDue C C C C", 9, 5, id="L1 a retry and no start"),
    pytest.param("L1", "Due+Min IS IEs C C C", 5, 2, id="L1 due at boot and no start"),
    pytest.param("L1", f"{UP} Due RS Crash IS IEs C C C", 9, 6, id="L1 an orphan and no start"),
    pytest.param("L1", f"{UP} Due C C C RS", 6, 2, id="L1 a start that comes too late"),
    pytest.param("L1", f"{UP} Due RS Due REs C C C", 8, 5, id="L1 due while it ran"),
    pytest.param("L2", "IS C C C", 3, 0, id="L2 initialize() and no end"),
    pytest.param("L2", "IS C C IEs", 3, 0, id="L2 an end that comes too late"),
    pytest.param("L2", f"{UP} SS SE IS C C C", 7, 4, id="L2 the second call"),
    pytest.param("L2", "IS#1 IS#2 IEf#2 C", 3, 0, id="L2 the end of another call"),
    pytest.param("L3", f"{UP} SS C C C", 5, 2, id="L3 stop() and no end"),
    pytest.param("L3", f"{UP} Due RS SS REs C C C", 8, 5, id="L3 no end after the last run"),
    pytest.param("L3", "IS SS IEf C C C", 5, 2, id="L3 no end after initialize()"),
    pytest.param("L3", f"{UP} SS C C SE", 5, 2, id="L3 an end that comes too late"),
]


@pytest.mark.parametrize(("axiom", "text", "position", "since"), LIVENESS)
def test_a_promise_is_broken_when_too_much_has_passed(
    axiom: str, text: str, position: int, since: int
) -> None:
    finding = check(computed(text), TIGHT)[axiom]
    assert (finding.status, finding.position, finding.since) == (Status.FAILED, position, since), finding
    assert evaluate(computed(text), LivenessBounds(TIGHT))[axiom] == (Status.FAILED, position)
    patient = check(computed(text), (0, 3, 1))[axiom]
    assert patient.status is not Status.FAILED


@pytest.mark.parametrize(("axiom", "text", "position", "since"), LIVENESS)
def test_without_a_bound_a_promise_is_never_broken(axiom: str, text: str, position: int, since: int) -> None:
    kept = text.rsplit(maxsplit=1)[-1] in ("RS", "IEs", "SE")
    expected = Status.PASSED if kept else Status.INCONCLUSIVE
    assert check(computed(text))[axiom].status is expected


@pytest.mark.parametrize(
    ("axiom", "text", "position"),
    [
        pytest.param("L1", "IS IEs Due@10 RS@21", 3, id="a start"),
        pytest.param("L1", "IS IEs Due@10 Min@15 Min@21", 4, id="none"),
        pytest.param("L2", "IS IEs@11", 1, id="initialize"),
        pytest.param("L3", "IS IEs SS SE@13", 3, id="stop"),
    ],
)
def test_without_compute_a_span_of_time_may_be_the_bound(axiom: str, text: str, position: int) -> None:
    assert check(trace(text))[axiom].status is Status.INCONCLUSIVE
    assert check(trace(text), within=11)[axiom].status is not Status.FAILED
    finding = check(trace(text), within=10)[axiom]
    assert (finding.status, finding.position) == (Status.FAILED, position)
    assert evaluate(trace(text), LivenessBounds(within=10))[axiom] == (Status.FAILED, position)


def test_a_trace_that_ends_early_leaves_promises_open() -> None:
    report = check(computed(f"{UP} Due"), TIGHT)
    assert report["L1"].status is Status.INCONCLUSIVE
    assert report["L1"].message == "one promise is still open at the end"
    assert report.conforms


def test_what_no_finite_trace_decides_is_inconclusive() -> None:
    for text in ("IS", CONFORMING["a"], "RS RS RS"):
        report = check(computed(text))
        assert {report[axiom].status for axiom in ("EA4", "EA5")} == {Status.INCONCLUSIVE}


def test_without_compute_nothing_is_said_about_it() -> None:
    report = check(trace(CONFORMING["a"]))
    for axiom in ("EA1", "EA2", "L1", "L2", "L3"):
        assert report[axiom].status is Status.INCONCLUSIVE


@pytest.mark.parametrize(
    ("text", "blame"),
    [
        pytest.param(f"{UP} REs RS", Blame.ENVIRONMENT, id="the environment first"),
        pytest.param(f"{UP} RS REs REs", Blame.SCHEDULER, id="the scheduler first"),
        pytest.param("IS=AB IEs RS:a+RS:b", Blame.ENVIRONMENT, id="both at once"),
        pytest.param(f"{UP} Due RS REs", None, id="neither"),
    ],
)
def test_who_broke_an_axiom_first_is_to_blame(text: str, blame: Blame | None) -> None:
    assert check(trace(text)).blame is blame


def test_each_axiom_is_judged_whatever_else_failed() -> None:
    report = check(trace("RS IEs=TWICE REs REs IS=TWICE IEs SE IS IEf"))
    failed = {finding.axiom for finding in report.failed}
    assert failed >= {"S1", "S4", "EA7"}
    assert report["S4"].position == 5


# --- simultaneous events: unlawful as they are, each formula has its own word on them ---

SIMULTANEOUS = [
    pytest.param("S1", "IS IEs Due Due+RS REs RS", Status.PASSED, id="a due beside a start is still pending"),
    pytest.param(
        "S1",
        "IS IEs Due RS Min IS=NONE IEs IS IEs+REf RetryDue RS",
        Status.PASSED,
        id="a failure at a first coming",
    ),
    pytest.param(
        "S1", "IS IEs Due RS Min IS=NONE IEs IS Crash+IEs RS", Status.FAILED, id="an orphan at a first coming"
    ),
    pytest.param(
        "S1", "IS IEs Due RS Min IS=NONE IEs IS Crash+IEs C RS", Status.PASSED, id="and a position later"
    ),
    pytest.param(
        "S1", "Min+Due IS SS IEs SE IS IEs RS", Status.FAILED, id="due at a boot that was stopped at once"
    ),
    pytest.param("S2", "Due IS IEs+RS REs RS REs", Status.FAILED, id="a first coming with the first start"),
    pytest.param("S2", "IS IEs Due+RS REs RS REs", Status.FAILED, id="a due with the first start"),
    pytest.param("S2", "IS IEs Due RS REs Due+RS REs", Status.PASSED, id="a due with the second start"),
    pytest.param("S2", "IS IEs Due RS REs RS+Crash REs", Status.PASSED, id="a start that a crash overtakes"),
    pytest.param("S6", "IS IEs SS IS IEs+SE IS IEs", Status.FAILED, id="a stop's end with the last success"),
    pytest.param("EA6", "IS IEs Due Crash+RS REs", Status.PASSED, id="a start with the crash"),
]


@pytest.mark.parametrize(("axiom", "text", "status"), SIMULTANEOUS)
def test_simultaneous_events_are_judged_by_the_formula(axiom: str, text: str, status: Status) -> None:
    assert check(trace(text))[axiom].status is status
    assert evaluate(trace(text))[axiom][0] is status


# --- theorems: what follows from the axioms is caught by them ---

THEOREMS = [
    pytest.param(f"{UP} Due RS Crash Due RS", id="no start between a crash and a success"),
    pytest.param(f"{UP} Due RS Due RS", id="no two runs of one task at once"),
    pytest.param(f"{UP} Due SS SE Due RS", id="no start between a stop's end and a success"),
]


@pytest.mark.parametrize("text", THEOREMS)
def test_what_the_theorems_exclude_breaks_an_axiom(text: str) -> None:
    assert check(trace(text))["S1"].status is Status.FAILED


@pytest.mark.parametrize("action", ["IS", "IEs", "IEf", "SS", "SE", "RS", "REs", "REf"])
@pytest.mark.parametrize("compute", ["", "C+"])
def test_a_crash_and_an_action_at_one_position_break_an_axiom(action: str, compute: str) -> None:
    report = check(trace(f"C+IS C+IEs Due C+RS C+SS {compute}Crash+{action}", compute=None))
    assert {finding.axiom for finding in report.failed} & {"EA1", "EA2"}


# --- supernatural ---


def test_from_an_unhappy_phenomenon_on_nothing_is_judged() -> None:
    text = f"{UP} REs Sup:store RS SS SE"
    report = check(trace(text))
    assert report.scope_ends == 3
    assert report["EA7"].status is Status.FAILED
    assert (report["S1"].status, report["S1"].position) == (Status.OUT_OF_SCOPE, 3)
    assert report["EA4"].status is Status.INCONCLUSIVE
    happy = check(trace(text), happy=["store"])
    assert (happy["S1"].status, happy["S1"].position) == (Status.FAILED, 4)
    assert check(trace(text), happy=["clock"])["S1"].status is Status.OUT_OF_SCOPE


def test_a_trace_that_leaves_its_scope_before_it_fails_conforms() -> None:
    report = check(trace(f"{UP} Sup:clock RS"))
    assert (report.verdict, report.blame) == ("conforms", None)


def test_a_refusal_because_of_a_failing_store_is_no_violation() -> None:
    assert check(trace("IS Sup:store IEf"))["S5"].status is Status.OUT_OF_SCOPE
    assert check(trace("IS Sup:store IEf"), happy=["store"])["S5"].status is Status.FAILED
