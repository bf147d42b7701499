"""Jobs from typed arguments: equal to those read from plain data, and checked when they are made."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

import kron
from kron.errors import InvalidOptionError

HOUR = timedelta(hours=1)


def test_a_job_from_typed_arguments_equals_the_one_from_plain_data() -> None:
    typed = kron.Job(
        identity="prod/report",
        schedule=kron.Schedule("0 */2 * * *", timezone="Europe/Berlin"),
        window=kron.Window("around", "30m"),
        distribution=kron.Normal(kron.Mu.NOMINAL, sigma=timedelta(minutes=5)),
        seed_strategy=kron.SeedStrategy.DAILY,
        salt="2",
        constraints=kron.Constraints(
            only=kron.ConstraintRule(
                dow="mon-fri", hours=range(6, 20), between=["06:30-12:00", "13:00-19:00"]
            ),
            avoid=kron.ConstraintRule(
                dates=["2026-12-24..2026-12-26", date(2027, 1, 1)], calendars={"fair": ["2026-06-01"]}
            ),
        ),
        policy=kron.Policy(overlap=kron.Overlap.QUEUE, deadline=timedelta(minutes=10)),
    )
    plain = kron.Job.from_dict(
        {
            "identity": "prod/report",
            "schedule": "0 */2 * * *",
            "timezone": "Europe/Berlin",
            "window": {"mode": "around", "duration": "30m"},
            "distribution": {"name": "normal", "mu": "nominal", "sigma": "5m"},
            "seed": {"strategy": "daily", "salt": "2"},
            "constraints": {
                "only": {
                    "dow": "mon-fri",
                    "hours": list(range(6, 20)),
                    "between": ["06:30-12:00", "13:00-19:00"],
                },
                "avoid": {
                    "dates": ["2026-12-24..2026-12-26", "2027-01-01"],
                    "calendars": {"fair": ["2026-06-01"]},
                },
            },
            "policy": {"concurrency": "queue", "deadline": "10m"},
        }
    )
    assert typed.to_dict() == plain.to_dict()
    assert (typed.window, typed.distribution, typed.constraints) == (
        plain.window,
        plain.distribution,
        plain.constraints,
    )


def test_the_parts_of_a_rule_make_an_equal_rule() -> None:
    rule = kron.ConstraintRule(
        hours=9, dow=["sat", 7], dom="1-7", months="jun", between="09:00-17:00", dates=date(2026, 6, 1)
    )
    again = kron.ConstraintRule(
        hours=rule.hours,
        dow=rule.dow,
        dom=rule.dom,
        months=rule.months,
        between=rule.between,
        dates=rule.dates,
    )
    assert again == rule
    assert (rule.hours, rule.dow, rule.months) == (frozenset({9}), frozenset({6, 0}), frozenset({6}))
    named = kron.ConstraintRule(calendars={"fair": ["2026-06-01"]})
    assert kron.ConstraintRule(calendars=named.calendars) == named
    assert kron.ConstraintRule(hours=[]) == kron.ConstraintRule()


# A type checker refuses most of these too.
WRONG: Any = kron


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WRONG.Window("beside"), 'Invalid mode "beside": use after, before, around, center'),
        (lambda: WRONG.Window("after", "soon"), 'Invalid duration "soon": write 90s, 1h30m, PT90M'),
        (lambda: WRONG.Window(duration=-HOUR), "must be a timedelta that is not negative"),
        (lambda: WRONG.Window(duration=60), 'Invalid duration "60": must be a timedelta'),
        (lambda: WRONG.SkewEarly(shape=0), 'Invalid shape "0": must be'),
        (lambda: WRONG.SkewLate(shape=-1.5), 'Invalid shape "-1.5": must be'),
        (lambda: WRONG.Exponential(rate=0), 'Invalid rate "0": must be'),
        (lambda: WRONG.Exponential(dir="up"), 'Invalid dir "up": use early, late'),
        (lambda: WRONG.Normal("top"), 'Invalid mu "top": use nominal, start, mid, end'),
        (lambda: WRONG.Normal("mid", sigma=timedelta(0)), 'Invalid sigma "0:00:00": must be longer than 0'),
        (lambda: WRONG.Normal("mid", sigma="5m"), 'Invalid sigma "5m": must be None or a timedelta'),
        (lambda: WRONG.ConstraintRule(hours=[24]), "24 is not among 0-23"),
        (lambda: WRONG.ConstraintRule(hour=[9]), 'Invalid hour "[9]": did you mean hours?'),
        (lambda: WRONG.ConstraintRule(dates="2026-02-30"), "is not a day of the calendar"),
        (lambda: WRONG.ConstraintRule(calendars=["fair"]), 'unknown calendar "fair"'),
    ],
)
def test_a_wrong_part_is_refused_when_it_is_made(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        make()
    assert message in str(refused.value)


def test_a_job_takes_an_expression_for_its_schedule() -> None:
    text: Any = "H/5 * * * *"
    job = kron.Job(identity="a", schedule=text)
    assert job.schedule == kron.Schedule(text, identity="a")
    assert job == kron.Job.from_dict({"identity": "a", "schedule": text})
    wrong: Any = "61 * * * *"
    with pytest.raises(kron.InvalidJobError, match=r'schedule "61 \* \* \* \*": .*minute field'):
        kron.Job(identity="a", schedule=wrong)


def test_a_job_with_parts_of_the_wrong_type_is_refused_with_all_of_them() -> None:
    wrong: Any = {
        "schedule": 5,
        "window": "10m",
        "distribution": "uniform",
        "seed_strategy": "daily",
        "constraints": {},
        "policy": {"deadline": "1m"},
    }
    with pytest.raises(kron.InvalidJobError) as refused:
        kron.Job(identity="a", **wrong)
    assert [str(problem) for problem in refused.value.problems] == [
        'schedule "5": must be a kron.Schedule, got int',
        'window "10m": must be a kron.Window, got str',
        'seed_strategy "daily": must be a kron.SeedStrategy, got str',
        'constraints "{}": must be a kron.Constraints, got dict',
        'policy "{deadline: 1m}": must be a kron.Policy, got dict',
        'distribution "uniform": must be a distribution such as kron.Uniform(), got str',
    ]
