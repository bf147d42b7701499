"""Reading definitions: plain data in, checked values out, everything that is wrong said at once."""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from kron.core.cron.field import MONTH, WEEKDAY, Unit
from kron.core.errors import InputError, Problem
from kron.core.job.constraint import Calendar, ConstraintRule, Constraints, Days, MinuteRange
from kron.core.job.distribution import (
    Dir,
    Distribution,
    Exponential,
    Mu,
    Normal,
    SkewEarly,
    SkewLate,
    Uniform,
)
from kron.core.job.fields import (
    FieldReader,
    choice_of,
    count_in,
    optional,
    parse_bool,
    parse_instant,
    parse_positive,
    parse_text,
    parse_utf8,
    refuse,
    suggestion,
)
from kron.core.job.policy import BOUNDS, CATCHUP_NAMES, ORPHAN_NAMES, OVERLAP_NAMES, USUAL, Policy
from kron.core.job.seed import SeedStrategy
from kron.core.job.window import MODE_NAMES, Window, WindowMode
from kron.core.time.duration import parse_duration

Calendars: TypeAlias = Mapping[str, tuple[Days, ...]]

# An exponential this flat cannot be told from a uniform one, and below it the formula loses its digits.
MIN_RATE = 1e-9
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")


def read_window(fields: FieldReader) -> Window:
    """Return the window, by default none."""
    mode = fields.read("mode", choice_of(MODE_NAMES), WindowMode.AFTER)
    return Window(mode, fields.read("duration", parse_duration, timedelta(0)))


# The parameters each distribution has, beside its name.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "uniform": (),
    "skewEarly": ("shape",),
    "skewLate": ("shape",),
    "normal": ("mu", "sigma"),
    "exponential": ("lambda", "dir"),
}


def read_distribution(parent: FieldReader, mode: WindowMode) -> Distribution:
    """Return the distribution, by default uniform; its parameters stand flat beside its name."""
    every = {parameter for parameters in PARAMETERS.values() for parameter in parameters}
    value = parent.get("distribution")
    if isinstance(value, str):
        value = {"name": value}
    given = value.get("name") if isinstance(value, Mapping) else None
    name = given if isinstance(given, str) and given in PARAMETERS else None
    known = PARAMETERS[name] if name else tuple(sorted(every))
    fields = FieldReader(value, parent.path_of("distribution"), parent.problems, known=("name", *known))
    if isinstance(value, Mapping) and name is None:
        fields.problem("name", given, suggestion(given, PARAMETERS))
    match name:
        case "skewEarly":
            return SkewEarly(fields.read("shape", parse_positive, SkewEarly().shape))
        case "skewLate":
            return SkewLate(fields.read("shape", parse_positive, SkewLate().shape))
        case "normal":
            usual = Mu.NOMINAL if mode is WindowMode.AROUND else Mu.MID
            mu = fields.read("mu", choice_of({mu.value: mu for mu in Mu}), usual)
            return Normal(mu, fields.read("sigma", _parse_sigma, None))
        case "exponential":
            rate = fields.read("lambda", _parse_rate, Exponential().rate)
            ends = choice_of({end.value: end for end in Dir})
            return Exponential(rate, fields.read("dir", ends, Dir.EARLY))
        case _:
            return Uniform()


def _parse_rate(value: object) -> float:
    rate = parse_positive(value)
    if rate < MIN_RATE:
        raise refuse(value, f"must be at least {MIN_RATE}; below it, use uniform")
    return rate


def _parse_sigma(value: object) -> timedelta | None:
    if value is None:
        return None
    sigma = parse_duration(value)
    if not sigma:
        raise refuse(value, "must be longer than 0")
    return sigma


def read_seed(fields: FieldReader) -> tuple[SeedStrategy, str]:
    """Return the seed strategy, by default stable, and the salt, by default empty."""
    names = {strategy.value: strategy for strategy in SeedStrategy}
    return fields.read("strategy", choice_of(names), SeedStrategy.STABLE), fields.read("salt", parse_utf8, "")


KINDS = ("hours", "dow", "dom", "months", "between", "dates", "calendars")
HOURS, DOM = Unit("hours", 0, 23), Unit("dom", 1, 31)


def read_constraints(fields: FieldReader, calendars: Calendars) -> Constraints:
    """Return both sides, by default empty."""
    only, avoid = (_read_rule(fields.sub(side, KINDS), calendars) for side in ("only", "avoid"))
    return Constraints(only=only, avoid=avoid)


def _read_rule(fields: FieldReader, calendars: Calendars) -> ConstraintRule:
    none: frozenset[int] = frozenset()
    return ConstraintRule(
        hours=fields.read("hours", lambda value: _numbers(value, HOURS), none),
        dow=fields.read("dow", lambda value: _numbers(value, WEEKDAY), none),
        dom=fields.read("dom", lambda value: _numbers(value, DOM), none),
        months=fields.read("months", lambda value: _numbers(value, MONTH), none),
        between=fields.read("between", lambda value: tuple(map(_parse_clock, _items(value))), ()),
        dates=fields.read("dates", parse_dates, ()),
        calendars=fields.read("calendars", lambda value: _named(value, calendars), ()),
    )


def _items(value: object) -> list[object]:
    """Return a list's items, or a single value as a list of one."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items:
        raise refuse(value, "must not be empty; leave it out to allow everything")
    return items


def _numbers(value: object, unit: Unit) -> frozenset[int]:
    numbers: set[int] = set()
    for item in _items(value):
        numbers |= _range_of(item, unit)
    return frozenset(numbers)


def _range_of(item: object, unit: Unit) -> set[int]:
    """Return the values of a number, a name, or a range `a-b` of them; Sunday may be 7."""
    words = item.split("-") if isinstance(item, str) and item.count("-") == 1 else [item]
    low, high = _number_of(words[0], item, unit), _number_of(words[-1], item, unit)
    if low > high:
        raise refuse(item, f"the range {item} is reversed")
    return {value % 7 if unit is WEEKDAY else value for value in range(low, high + 1)}


def _number_of(word: object, item: object, unit: Unit) -> int:
    highest = 7 if unit is WEEKDAY else unit.high
    if isinstance(word, str):
        text = word.strip()
        named = unit.value_of(text)
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else named
    else:
        number = word if isinstance(word, int) and not isinstance(word, bool) else None
    if number is None or not unit.low <= number <= highest:
        names = " or names" if unit.names else ""
        raise refuse(item, f"{item} is not among {unit.low}-{highest}{names}")
    return number


def _parse_clock(value: object) -> MinuteRange:
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise refuse(value, f'{value} is not a time span; write "09:00-17:30"')
    hour, minute, last_hour, last_minute = map(int, found.groups())
    return MinuteRange(60 * hour + minute, 60 * last_hour + last_minute)


def parse_dates(value: object) -> tuple[Days, ...]:
    """Return a list of days and spans of days."""
    return tuple(map(_parse_days, _items(value)))


def _parse_days(value: object) -> Days:
    if isinstance(value, date) and not isinstance(value, datetime):
        return Days(value, value)
    first, dots, last = value.partition("..") if isinstance(value, str) else ("", "", "")
    days = Days(_parse_date(first, value), _parse_date(last if dots else first, value))
    if days.first > days.last:
        raise refuse(value, f"{value} is reversed; write the earlier day first")
    return days


def _parse_date(text: str, value: object) -> date:
    try:
        if _DATE.fullmatch(text.strip()):
            return date.fromisoformat(text.strip())
    except ValueError as cause:
        raise refuse(value, f"{value} is no day of the calendar") from cause
    raise refuse(value, f'{value} is not a day; write "2026-12-24" or "2026-12-24..2027-01-01"')


def _named(value: object, calendars: Calendars) -> tuple[Calendar, ...]:
    """Return calendars by name, or given in full with their dates; in the order of their names."""
    if isinstance(value, Mapping):
        if not value:
            raise refuse(value, "must not be empty; leave it out to allow everything")
        return tuple(Calendar(name, days) for name, days in sorted(parse_calendars(value).items()))
    found: dict[str, tuple[Days, ...]] = {}
    for item in _items(value):
        name = parse_text(item)
        if name not in calendars:
            known = f"known are {', '.join(sorted(calendars))}" if calendars else "none are defined"
            raise refuse(value, f'unknown calendar "{name}"; {known}')
        found[name] = calendars[name]
    return tuple(Calendar(name, days) for name, days in sorted(found.items()))


def parse_calendars(value: object) -> dict[str, tuple[Days, ...]]:
    """Return calendars given in full: a name, and the days it has."""
    if not isinstance(value, Mapping):
        raise refuse(value, "must be an object: a name, and a list of days")
    return {parse_text(name): parse_dates(dates) for name, dates in value.items()}


def read_calendars(value: object, problems: list[Problem]) -> Calendars:
    """Return calendars given in full; a wrong one keeps its name, so that it is not also called unknown."""
    try:
        return parse_calendars(value)
    except InputError as error:
        whole = Problem("calendars", value, str(error.details["reason"]))
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        problems.append(whole)
        return {}
    found: dict[str, tuple[Days, ...]] = {}
    for name, dates in value.items():
        try:
            found[name] = parse_dates(dates)
        except InputError as error:
            found[name] = ()
            problems.append(Problem(f"calendars.{name}", dates, str(error.details["reason"])))
    return found


_READERS: dict[str, Callable[[object], object]] = {
    "deadline": optional(parse_duration),
    "suspend": parse_bool,
    "catchup": choice_of(CATCHUP_NAMES),
    "on_orphan": choice_of(ORPHAN_NAMES),
    "retry_delay": optional(parse_duration),
    "run_timeout": optional(parse_duration),
    "replace_grace": parse_duration,
    "jitter_ms": count_in(*BOUNDS["jitter_ms"]),
    "queue_max": count_in(*BOUNDS["queue_max"]),
    "max_catchup": count_in(*BOUNDS["max_catchup"]),
    "remaining": optional(count_in(*BOUNDS["remaining"])),
    "pause_after_failures": optional(count_in(*BOUNDS["pause_after_failures"])),
    "start_at": optional(parse_instant),
    "end_at": optional(parse_instant),
}
# Policies kept ready; many jobs share few.
MAX_POLICIES = 1_000


def read_policy(fields: FieldReader) -> Policy:
    """Return the policy; `overlap` and `concurrency` are two words for one thing."""
    if fields.has("overlap") and fields.has("concurrency"):
        fields.problem("overlap", fields.get("overlap"), "stands beside concurrency; use one of the two")
    name = "overlap" if fields.has("overlap") else "concurrency"
    said: dict[str, object] = {"overlap": fields.read(name, choice_of(OVERLAP_NAMES), USUAL.overlap)}
    for name, reader in _READERS.items():
        if fields.has(name):
            said[name] = fields.read(name, reader, getattr(USUAL, name))
    start_at, end_at = said.get("start_at"), said.get("end_at")
    if isinstance(start_at, int) and isinstance(end_at, int) and start_at > end_at:
        fields.problem("end_at", fields.get("end_at"), "lies before start_at")
        del said["end_at"]
    return _policy(tuple(said.items()))


@lru_cache(maxsize=MAX_POLICIES)
def _policy(said: tuple[tuple[str, object], ...]) -> Policy:
    return Policy(**dict(said))  # type: ignore[arg-type]
