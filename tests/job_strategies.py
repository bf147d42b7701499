"""Hypothesis strategies for jobs: definitions as plain data, all of them valid."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.strategies import zones

Definition = dict[str, Any]

# At most hourly, so that a window may be 1,000 hours long.
SCHEDULES = ("0 0 * * *", "0 * * * *", "30 2 * * *", "15 3 * * 1-5", "0 12 1 * *", "@daily", "0 0 29 2 *")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

# The characters of a name, which stays on its line.
LINE = st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])


def identities() -> SearchStrategy[str]:
    return st.text(LINE, min_size=1, max_size=20).filter(lambda text: bool(text.strip()))


def salts() -> SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)


def durations(longest: int = 72 * 3600) -> SearchStrategy[str]:
    """Draw a duration in seconds, whole ones and parts of them, very short ones more often than by chance."""
    whole = st.integers(0, 5) | st.integers(0, longest)
    parts = st.sampled_from((0, 0, 1, 499_999, 500_000, 999_999)) | st.integers(0, 999_999)
    return st.builds(lambda seconds, micros: f"{seconds}.{micros:06}s", whole, parts)


def windows(longest: int = 72 * 3600) -> SearchStrategy[Definition]:
    modes = st.sampled_from(("after", "before", "around", "center"))
    return st.fixed_dictionaries({"mode": modes, "duration": durations(longest)})


def distributions() -> SearchStrategy[Definition]:
    positive = st.floats(0.01, 50) | st.sampled_from((1e-300, 1e-9, 0.5, 1, 2, 1000, 1e300))
    sigma = st.sampled_from(("0.000001s", "1s", "10m", "1h", "240h", "PT90M", 30))
    return st.one_of(
        st.just({"name": "uniform"}),
        _with_options({"name": "skewEarly"}, {"shape": positive}),
        _with_options({"name": "skewLate"}, {"shape": positive}),
        _with_options(
            {"name": "normal"}, {"mu": st.sampled_from(("nominal", "start", "mid", "end")), "sigma": sigma}
        ),
        _with_options(
            {"name": "exponential"},
            {"lambda": st.floats(1e-9, 1e308), "dir": st.sampled_from(("early", "late"))},
        ),
    )


def seeds() -> SearchStrategy[Definition]:
    strategies = st.sampled_from(("stable", "daily", "weekly"))
    return st.fixed_dictionaries({"strategy": strategies}, optional={"salt": salts()})


def constraints() -> SearchStrategy[Definition]:
    return st.fixed_dictionaries({}, optional={"only": rules(), "avoid": rules()})


def rules() -> SearchStrategy[Definition]:
    clock = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
    between = st.builds("{}-{}".format, clock, clock)
    dates = st.lists(st.dates(date(2019, 12, 1), date(2026, 2, 1)), min_size=1, max_size=2).map(_days)
    days = st.lists(dates, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "hours": _some(st.integers(0, 23)),
            "dow": _some(st.integers(0, 7) | st.sampled_from(WEEKDAYS)),
            "dom": _some(st.integers(1, 31)),
            "months": _some(st.integers(1, 12)),
            "between": st.lists(between, min_size=1, max_size=3),
            "dates": days,
            "calendars": st.dictionaries(identities(), days, min_size=1, max_size=2),
        },
    )


def policies() -> SearchStrategy[Definition]:
    return st.fixed_dictionaries(
        {},
        optional={
            "concurrency": st.sampled_from(("allow", "forbid", "replace", "skip")),
            "deadline": durations() | st.none(),
            "suspend": st.booleans(),
        },
    )


def definitions(*, constrained: bool = True) -> SearchStrategy[Definition]:
    """Draw the definition of a job; each part may be left out."""
    optional = {
        "timezone": zones(),
        "window": windows(),
        "distribution": distributions(),
        "seed": seeds(),
        "policy": policies(),
    }
    if constrained:
        optional["constraints"] = constraints()
    required = {"identity": identities(), "schedule": st.sampled_from(SCHEDULES)}
    return st.fixed_dictionaries(required, optional=optional)


def nominal_times() -> SearchStrategy[datetime]:
    """Draw a whole second of the years 2020 to 2025, in UTC."""
    first = datetime(2020, 1, 1, tzinfo=UTC)
    return st.integers(0, 6 * 365 * 86_400).map(lambda seconds: first + timedelta(seconds=seconds))


def allows(definition: Definition, instant: datetime) -> bool:
    """Return whether a definition's constraints allow an instant, from its plain data and without Kron."""
    local = instant.astimezone(ZoneInfo(definition.get("timezone", "UTC")))
    sides = definition.get("constraints", {})
    only, avoid = (
        [_matches(kind, values, local) for kind, values in sides.get(side, {}).items()]
        for side in ("only", "avoid")
    )
    return all(only) and not any(avoid)


def _matches(kind: str, values: Any, local: datetime) -> bool:
    match kind:
        case "hours":
            return local.hour in values
        case "dow":
            return local.isoweekday() % 7 in {
                WEEKDAYS.index(value) if isinstance(value, str) else value % 7 for value in values
            }
        case "dom":
            return local.day in values
        case "months":
            return local.month in values
        case "between":
            return any(_between(value, local.hour * 60 + local.minute) for value in values)
        case "calendars":
            return any(_matches("dates", days, local) for days in values.values())
        case _:
            return any(value[:10] <= str(local.date()) <= value[-10:] for value in values)


def _between(span: str, minute: int) -> bool:
    first, last = (int(clock[:2]) * 60 + int(clock[3:]) for clock in span.split("-"))
    # The minutes of the span one by one, from the first on and round the clock.
    return minute in {(first + step) % 1440 for step in range((last - first) % 1440 + 1)}


def _some(values: SearchStrategy[Any]) -> SearchStrategy[list[Any]]:
    return st.lists(values, min_size=1, max_size=6)


def _days(dates: list[date]) -> str:
    return "..".join(map(str, sorted(dates)))


def _with_options(fixed: Definition, optional: dict[str, SearchStrategy[Any]]) -> SearchStrategy[Definition]:
    return st.fixed_dictionaries({}, optional=optional).map(lambda options: {**fixed, **options})
