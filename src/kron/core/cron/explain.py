"""A cron expression in words: one English sentence that describes exactly when it matches.

The sentence is built from values alone, never from the text, so equal expressions read the same. It is
complete: it determines every matching time, so expressions with different meanings read differently.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Protocol, TypeAlias

from kron.core.cron.field import (
    MONTH_NAMES,
    WEEKDAY_NAMES,
    Field,
    LastDay,
    Mark,
    NearestWorkday,
    NthWeekday,
    bits_of,
)

Values: TypeAlias = tuple[int, ...]

UTC = "UTC"
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
# The longest readable list: longer ones are shortened in the middle, or phrased differently.
MAX_LISTED = 6
# Up to this count single times are clearer than "every ... from ... to ...".
MAX_ALONE = 3
MAX_STRETCHES = 3
_NTH = ("first", "second", "third", "fourth", "fifth")
_WORKDAYS = "(Monday to Friday)"


class Described(Protocol):
    """The input of a sentence; an `Expression` is one."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the five or, with seconds, six fields in order."""
        ...

    @property
    def either(self) -> bool:
        """Return whether one matching day field is sufficient."""
        ...

    @property
    def timezone(self) -> str | None:
        """Return the zone of the expression's prefix, if any."""
        ...


def describe_expression(expression: Described, timezone: str | None = None) -> str:
    """Return one sentence, without a full stop, that describes when an expression matches.

    It names the given time zone, by default that of the expression's prefix.
    """
    *first, minute, hour, day, month, weekday = expression.fields
    second = first[0].values if first else (0,)
    days = _days(day, month, weekday, either=expression.either)
    times = _times(second, minute.values, hour.values, wraps=days == "every day")
    # "Every minute every day" means the same as "every minute".
    if _is_full(hour):
        days = days.removeprefix("every day").lstrip()
    sentence = f"{times} {days}".rstrip()
    zone = timezone or expression.timezone
    if zone:
        sentence += f", {UTC}" if zone == UTC else f", {zone} time"
    return sentence


# --- times of day ----------------------------------------------------------------------------------


def _times(second: Values, minute: Values, hour: Values, *, wraps: bool) -> str:
    """Describe the times of day: as a step, as single times, or by hour, minute and second.

    `wraps` says that every day matches, so that a stretch may continue over midnight.
    """
    stretches = _stretches(second, minute, hour)
    step, alone = stretches[0].step, len(stretches) == 1
    count = len(second) * len(minute) * len(hour)
    if wraps and len(hour) < 24 and count > MAX_ALONE and _meet_at_midnight(stretches):
        nights = [*stretches[1:-1], range(stretches[-1][0], stretches[0][-1] + _DAY + 1, step)]
        if len(nights) <= MAX_STRETCHES and (len(nights) == 1 or _are_alike(nights)):
            return _from_to(nights)
    if len(hour) == 24:
        if stretches == [range(0, _DAY, step)]:
            return f"Every {_period(step)}"
    elif alone and count > MAX_ALONE and _is_round(step):
        return _from_to(stretches)
    elif alone or count <= MAX_LISTED:
        return f"At {_and(_shortened(_clocks(time for part in stretches for time in part)))}"
    elif len(stretches) <= MAX_STRETCHES and _are_alike(stretches):
        return _from_to(stretches)
    return _by_field(second, minute, hour)


def _stretches(second: Values, minute: Values, hour: Values) -> list[range]:
    """Return the times of a day, in seconds, as stretches of even steps; if there are many, only some."""
    stretches = _joined(range(value, value + 1) for value in second)
    for values, size in ((minute, _MINUTE), (hour, _HOUR)):
        # Too many stretches already: the exact number is not needed.
        if len(stretches) <= MAX_LISTED:
            stretches = _joined(_shift(part, value * size) for value in values for part in stretches)
    return stretches


def _joined(parts: Iterable[range]) -> list[range]:
    """Join ascending parts where one continues the step of the other."""
    joined: list[range] = []
    for part in parts:
        if joined:
            last = joined[-1]
            gap = part[0] - last[-1]
            if {known.step for known in (last, part) if len(known) > 1} <= {gap}:
                joined[-1] = range(last[0], part[-1] + 1, gap)
                continue
        joined.append(part)
    return joined


def _shift(part: range, seconds: int) -> range:
    return range(part.start + seconds, part.stop + seconds, part.step)


def _is_round(step: int) -> bool:
    """Return whether a step divides its minute, hour or day, so that "every 7 minutes" is never used."""
    ring = _MINUTE if step < _MINUTE else _HOUR if step < _HOUR else _DAY
    return ring % step == 0


def _are_alike(stretches: list[range]) -> bool:
    """Return whether several stretches have one common step."""
    steps = {part.step for part in stretches}
    return len(steps) == 1 and _is_round(steps.pop()) and all(len(part) > 1 for part in stretches)


def _meet_at_midnight(stretches: list[range]) -> bool:
    """Return whether the last stretch of a day continues with the first of the next, in one step."""
    if len(stretches) == 1 or len(stretches) > MAX_STRETCHES + 1:
        return False
    first, last = stretches[0], stretches[-1]
    steps = {part.step for part in (first, last) if len(part) > 1}
    step = first[0] + _DAY - last[-1]
    return steps == {step} and first.step == step and _is_round(step)


def _from_to(stretches: list[range]) -> str:
    clocks = _clocks(bound for part in stretches for bound in (part[0], part[-1]))
    bounds = [f"from {start} to {end}" for start, end in zip(clocks[::2], clocks[1::2], strict=True)]
    return f"Every {_period(stretches[0].step)} {_and(bounds)}"


def _by_field(second: Values, minute: Values, hour: Values) -> str:
    """Describe minutes and seconds separately, since they recur in several hours."""
    hours = "every hour" if len(hour) == 24 else _numbered("hour", hour)
    if second == (0,):
        if step := _whole_step(minute):
            return f"Every {_period(step * _MINUTE)} during {hours}"
        return f"At {_numbered('minute', minute)} past {hours}"
    minutes = "every minute" if len(minute) == 60 else _numbered("minute", minute)
    if step := _whole_step(second):
        return f"Every {_period(step)} during {hours if len(minute) == 60 else f'{minutes} of {hours}'}"
    place = minutes if len(minute) == 60 and len(hour) == 24 else f"{minutes} of {hours}"
    return f"At {_listed(second, str)} {'second' if second == (1,) else 'seconds'} past {place}"


def _whole_step(values: Values) -> int | None:
    """Return the step that covers the sixty values evenly from 0, if there is one."""
    step = 60 // len(values)
    return step if step < 60 and values == tuple(range(0, 60, step)) else None


def _period(step: int) -> str:
    for size, name in ((_HOUR, "hour"), (_MINUTE, "minute")):
        if step % size == 0:
            return _count(step // size, name)
    return _count(step, "second")


def _count(number: int, name: str) -> str:
    return name if number == 1 else f"{number} {name}s"


def _clocks(times: Iterable[int]) -> list[str]:
    """Format times of day, with seconds only if any of them has some."""
    texts = [f"{time // _HOUR % 24:02}:{time // _MINUTE % 60:02}:{time % 60:02}" for time in times]
    if all(text.endswith(":00") for text in texts):
        return [text.removesuffix(":00") for text in texts]
    return texts


# --- days ------------------------------------------------------------------------------------------


def _days(day: Field, month: Field, weekday: Field, *, either: bool) -> str:
    """Describe the days, and how the two day fields are joined if both are restricted."""
    free = _is_full(day), _is_full(weekday)
    if all(free) or (either and any(free)):
        return f"every day{_in(month)}"
    if free[0]:
        return _on_weekdays(weekday, month)
    days = f"on {_days_of_month(day)}"
    if free[1]:
        return f"{days}{_of(month)}"
    if either:
        return f"{days} of the month, and also {_every_weekday(weekday)}{_only_in(month)}"
    return f"{days}{_of(month)}, but only if it falls on {_any_weekday(weekday)}"


def _is_full(field: Field) -> bool:
    return field.mask == field.unit.full


def _days_of_month(day: Field) -> str:
    plain = f"the {_listed(day.values, _ordinal)}" if day.mask else ""
    return _and([plain, *_marked(day)] if plain else _marked(day))


def _on_weekdays(weekday: Field, month: Field) -> str:
    if not weekday.mask:
        return f"on {_and(_marked(weekday))}{_of(month)}"
    if marks := _marked(weekday):
        return f"on {_weekdays(weekday)} and on {_and(marks)} of the month{_only_in(month)}"
    return f"on {_weekdays(weekday)}{_in(month)}"


def _every_weekday(weekday: Field) -> str:
    parts = [f"every {_weekdays(weekday)}"] if weekday.mask else []
    if marks := _marked(weekday):
        parts.append(f"on {_and(marks)} of the month")
    return _and(parts)


def _any_weekday(weekday: Field) -> str:
    parts = [_weekdays(weekday, "or")] if weekday.mask else []
    if marks := _marked(weekday):
        parts.append(f"{_chain(marks, 'or')} of the month")
    return _chain(parts, "or")


def _weekdays(weekday: Field, conjunction: str = "and") -> str:
    """Name weekdays, with weeks that start on Monday."""
    values = tuple(sorted(value or 7 for value in weekday.values))
    return _listed(_unwrapped(values, 7), lambda value: WEEKDAY_NAMES[value % 7].title(), conjunction)


def _months(month: Field) -> str:
    return _listed(_unwrapped(month.values, 12), lambda value: MONTH_NAMES[(value - 1) % 12].title())


def _in(month: Field) -> str:
    return "" if _is_full(month) else f" {_within(month)}"


def _within(month: Field) -> str:
    """Name months after a preposition: "in May and June", "from June to August"."""
    values = _unwrapped(month.values, 12)
    one_range = len(values) > 2 and len(_runs(values)) == 1
    return f"{'from' if one_range else 'in'} {_months(month)}"


def _only_in(month: Field) -> str:
    """Name the months that a whole list of days is restricted to."""
    return "" if _is_full(month) else f", but only {_within(month)}"


def _of(month: Field) -> str:
    return f" of {_months(month)}" if len(month.values) == 1 else f" of the month{_in(month)}"


def _marked(field: Field) -> list[str]:
    """Name the days that depend on the month, without those that plain weekdays cover."""
    marks = sorted(field.marks, key=_rank)
    plain = set(bits_of(field.mask))
    return [_mark(mark) for mark in marks if not (isinstance(mark, NthWeekday) and mark.weekday in plain)]


def _rank(mark: Mark) -> tuple[int, int]:
    """Order marks so that "nearest to" comes last and cannot be read as applying to others."""
    match mark:
        case LastDay(back=back):
            return 0, back
        case NearestWorkday(day=day):
            return 1, day or 0
        case NthWeekday(weekday=weekday, nth=nth):
            return nth or 6, weekday or 7


def _mark(mark: Mark) -> str:
    match mark:
        case LastDay(back=back):
            return f"the {_ordinal(back + 1)}-to-last day" if back else "the last day"
        case NearestWorkday(day=day):
            nearest = f"the weekday {_WORKDAYS} nearest to the "
            return f"{nearest}{_ordinal(day)}" if day else f"the last weekday {_WORKDAYS}"
        case NthWeekday(weekday=weekday, nth=nth):
            return f"the {_NTH[nth - 1] if nth else 'last'} {WEEKDAY_NAMES[weekday].title()}"


# --- lists -----------------------------------------------------------------------------------------


def _listed(values: Values, write: Callable[[int], str], conjunction: str = "and") -> str:
    """Format ascending values: three or more in a row become a range, a long even list is shortened."""
    steps = {after - before for before, after in pairwise(values)}
    if len(steps) == 1 and 1 not in steps:
        return _chain(_shortened([write(value) for value in values]), conjunction)
    words: list[str] = []
    for run in _runs(values):
        words += [f"{write(run[0])} to {write(run[-1])}"] if len(run) > 2 else map(write, run)
    return _chain(words, conjunction)


def _runs(values: Values) -> list[range]:
    runs: list[range] = []
    for value in values:
        if runs and runs[-1].stop == value:
            runs[-1] = range(runs[-1].start, value + 1)
        else:
            runs.append(range(value, value + 1))
    return runs


def _unwrapped(values: Values, size: int) -> Values:
    """Join a run that wraps around the end of its range, such as Sunday to Thursday."""
    runs = _runs(values)
    if len(runs) != 2 or values[-1] - values[0] != size - 1:
        return values
    return (*runs[1], *(value + size for value in runs[0]))


def _shortened(words: list[str]) -> list[str]:
    """Shorten an even list in the middle: its first three and its last determine the rest."""
    return words if len(words) <= MAX_LISTED else [f"{', '.join(words[:3])}, ... {words[-1]}"]


def _numbered(name: str, values: Values) -> str:
    return f"{name if len(values) == 1 else f'{name}s'} {_listed(values, str)}"


def _ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _and(words: list[str]) -> str:
    return _chain(words, "and")


def _chain(words: list[str], conjunction: str) -> str:
    *front, last = words
    return f"{', '.join(front)} {conjunction} {last}" if front else last
