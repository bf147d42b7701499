"""Lint: errors of a schedule, and behaviour that surprises its author.

Every check takes one schedule and yields remarks; `kron.core.lint.finding` has the table of their codes.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import TypeAlias

from kron.core.cron.crontab import CrontabEntry
from kron.core.cron.dialect import ANY_IDENTITY, DIALECTS, EXTENDED, needs_identity, parse, parse_field
from kron.core.cron.expression import ON_THE_MINUTE, Expression
from kron.core.cron.field import DAY, HOUR, MINUTE, MONTH, SECOND, UNITS, WEEKDAY, Field, Unit, runs_of
from kron.core.cron.item import number_of
from kron.core.cron.preview import Effect, clock_text, effects
from kron.core.cron.schedule import UTC, Schedule, seconds_between
from kron.core.cron.timeline import BOTH, GAP_CHOICES, REPEAT_CHOICES, SKIP
from kron.core.errors import InvalidCronExpressionError, NeverMatchesError, UnknownTimezoneError, check_choice
from kron.core.job.policy import LOOKAHEAD_MS, Catchup, Policy
from kron.core.lint.finding import Code, LintFinding, Remark, finding_of, in_order
from kron.core.time.duration import format_duration
from kron.core.time.instant import DAY as DAY_SECONDS
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.core.time.zone import Transition, zone_of

# How far ahead clock changes are reported: two years.
HORIZON = 2 * 366 * DAY_SECONDS
# Runs no further apart than this are a rate, which a clock change does not affect.
RATE = 3600

# A start is late by whole seconds.
SECOND_LATE = timedelta(seconds=1)
# Catch-up judges periods that are later than this; earlier ones are simply due.
TAKE_OVER_GRACE = timedelta(milliseconds=LOOKAHEAD_MS)

_ZONED = re.compile(r"[ \t]*(?:CRON_TZ|TZ)=([^ \t]+)[ \t]+(.*)", re.IGNORECASE | re.DOTALL)
_FIELD_LIKE = re.compile(r"[0-9*][0-9*,/-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintContext:
    """The context of lint: the options of `Schedule`, and the instant to look ahead from."""

    now: EpochSeconds
    timezone: str | None = None
    dialect: str = EXTENDED
    identity: str | None = None
    dst_gap: str = SKIP
    dst_repeat: str = BOTH

    def __post_init__(self) -> None:
        """Check the choices; an unknown zone is a finding instead."""
        check_choice("dialect", self.dialect, DIALECTS)
        check_choice("dst_gap", self.dst_gap, GAP_CHOICES)
        check_choice("dst_repeat", self.dst_repeat, REPEAT_CHOICES)


Remarks: TypeAlias = Iterator[Remark]


def lint_schedule(text: str, setting: LintContext) -> list[LintFinding]:
    """Return the findings of one expression."""
    _, remarks = _examine(text, setting)
    return in_order(finding_of(remark, text) for remark in remarks)


def lint_entries(entries: Iterable[CrontabEntry], setting: LintContext) -> list[LintFinding]:
    """Return the findings of a crontab, by line; its zones override the setting's."""
    findings: list[LintFinding] = []
    lines: dict[tuple[object, ...], int] = {}
    for entry in entries:
        own = setting if entry.timezone is None else replace(setting, timezone=entry.timezone)
        schedule, remarks = _examine(entry.expression, own)
        remarks += _extra_field(entry)
        if schedule is not None:
            same = (schedule.expression.times, own.timezone or UTC, entry.user, entry.command)
            if lines.setdefault(same, entry.line) != entry.line:
                remarks.append(_repeated(lines[same]))
        findings += [_placed(remark, entry) for remark in remarks]
    return in_order(findings)


def lint_job(entry: CrontabEntry, setting: LintContext) -> list[LintFinding]:
    """Return the findings of one job's schedule, whose options are in the setting."""
    _, remarks = _examine(entry.expression, setting)
    return in_order(_placed(remark, entry) for remark in remarks)


def lint_policy(policy: Policy, named: Collection[str]) -> list[Remark]:
    """Return the remarks about a job's policy, of which a definition has named some fields."""
    deadline = policy.deadline
    remarks: list[Remark] = []
    if deadline is None:
        return []
    if deadline < SECOND_LATE:
        whose = "" if "deadline" in named else ", the default of a job that names none"
        message = f"the deadline is 0s{whose}: a start that is one second late is missed"
        remedy = "name a longer one, such as deadline: 10m, or null to start however late it is"
        remarks.append(Remark(Code.NO_LATENESS, message, remedy))
    catches_up = "catchup" in named and policy.catchup in (Catchup.ONCE, Catchup.ALL)
    if catches_up and deadline < TAKE_OVER_GRACE:
        message = (
            f"catchup {policy.catchup} starts nothing after an outage: a period it missed is at least "
            f"{format_duration(TAKE_OVER_GRACE)} late, and the deadline is {format_duration(deadline)}"
        )
        remedy = "name a longer deadline, or catchup: none or spread"
        remarks.append(Remark(Code.IDLE_CATCHUP, message, remedy))
    return remarks


def lint_name(identity: str) -> Remark:
    """Return the remark about a job whose identity is made of its file's name."""
    message = (
        f'the identity "{identity}" comes from the file\'s name: in another file the job would be a new one, '
        "with other decisions and without its history"
    )
    return Remark(Code.NAMED_BY_FILE, message, f'write identity="{identity}" to keep it when the file moves')


def _placed(remark: Remark, entry: CrontabEntry) -> LintFinding:
    """Return a remark with its line; that of an assigned zone is the line of the assignment."""
    if remark.code is Code.ZONE and entry.zone_line is not None:
        return finding_of(remark, entry.timezone or "", entry.zone_line)
    return finding_of(remark, entry.expression, entry.line)


def _examine(text: str, setting: LintContext) -> tuple[Schedule | None, list[Remark]]:
    """Return a text's schedule, if it is one, and every remark about it."""
    zoned = _ZONED.fullmatch(text) if setting.dialect == EXTENDED else None
    prefix, fields = (zoned[1], zoned[2]) if zoned else (None, text)
    remarks = list(_zone_faults(prefix, setting.timezone))
    # With an invalid zone, the other checks still run.
    zone = UTC if remarks else prefix or setting.timezone or UTC
    try:
        schedule = Schedule(
            fields,
            zone,
            dialect=setting.dialect,
            identity=setting.identity,
            dst_gap=setting.dst_gap,
            dst_repeat=setting.dst_repeat,
        )
    except InvalidCronExpressionError as error:
        return None, [*remarks, _refusal(error, setting)]
    return schedule, remarks + [remark for check in CHECKS for remark in check(schedule, setting.now)]


# --- errors ----------------------------------------------------------------------------------------


def _zone_faults(prefix: str | None, timezone: str | None) -> Remarks:
    for key in dict.fromkeys((prefix, timezone)):
        try:
            zone_of(key if key is not None else UTC)
        except UnknownTimezoneError as error:
            close, remedy = error.details["suggestions"], "use an IANA name"
            if isinstance(close, tuple) and close:
                remedy = f"write {' or '.join(close)}"
            yield Remark(Code.ZONE, f'unknown time zone "{key}"', remedy)
    if prefix is not None and timezone is not None and prefix != timezone:
        message = f"the expression has CRON_TZ={prefix}, but the time zone option is {timezone}"
        yield Remark(Code.ZONE, message, "remove one of the two")


def _refusal(error: InvalidCronExpressionError, setting: LintContext) -> Remark:
    """Return why an expression is invalid, and a valid alternative."""
    try:
        meant = parse(error.expression, EXTENDED, identity=setting.identity or ANY_IDENTITY)
    except NeverMatchesError as never:
        return Remark(Code.NEVER, str(never), "correct the day, the month or the weekday")
    except InvalidCronExpressionError:
        part = error.field if error.field == "expression" else f"{error.field} field"
        return Remark(Code.INVALID, str(error), f"correct the {part}")
    if setting.dialect == EXTENDED:
        return Remark(Code.INVALID, str(error), "give it an identity, or write numbers instead of H")
    hashed = setting.identity is None and needs_identity(error.expression)
    strict = None if hashed else strict_text(meant)
    if strict is None:
        remedy = "it has no equivalent in the posix dialect; use the extended dialect"
        return Remark(Code.NOT_STRICT, str(error), remedy)
    zone = f" with the time zone {meant.timezone}" if meant.timezone else ""
    return Remark(Code.NOT_STRICT, str(error), f"the equivalent in the posix dialect is {strict}{zone}")


def strict_text(expression: Expression) -> str | None:
    """Return an expression in the posix dialect that matches the same times, or None where there is none."""
    day, weekday = expression.day, expression.weekday
    if expression.second != ON_THE_MINUTE or day.marks or weekday.marks:
        return None
    # Where both day fields must match, one has to be `*`: strictly, of two restricted ones either is enough.
    days = [_listed(field, star=not expression.either) for field in (day, weekday)]
    if not expression.either and "*" not in days:
        return None
    others = (expression.minute, expression.hour, expression.month)
    minute, hour, month = (_listed(field, star=True) for field in others)
    return f"{minute} {hour} {days[0]} {month} {days[1]}"


def _listed(field: Field, *, star: bool) -> str:
    return "*" if star and field.mask == field.unit.full else ",".join(runs_of(field.values))


def _exhausted(schedule: Schedule, now: EpochSeconds) -> Remarks:
    if schedule.plan.next_after(now - 1) is None:
        message = f"no time from {rfc3339(now)} on matches in {schedule.timezone}"
        yield Remark(Code.NEVER, message, "choose a time that the clocks do not skip every year")


# --- days ------------------------------------------------------------------------------------------


def _either_day(schedule: Schedule, now: EpochSeconds) -> Remarks:
    day, weekday = schedule.expression.day, schedule.expression.weekday
    everything = [field.mask == field.unit.full for field in (day, weekday)]
    if not schedule.expression.either or all(everything):
        return
    on_day, on_weekday = _day_words(schedule)
    message = (
        f"either day field is enough: it runs on day {on_day} of the month and also on weekday {on_weekday}"
    )
    if any(everything):
        message = f"either day field is enough: day {on_day} or weekday {on_weekday} is every day"
    remedy = "leave one of them *, or test the other in the command"
    nth = next((n for n in range(1, 5) if day.values == tuple(range(7 * n - 6, 7 * n + 1))), None)
    if nth and schedule.dialect == EXTENDED and not (day.marks or weekday.marks):
        only = ",".join(f"{value}#{nth}" for value in weekday.values)
        remedy = f"for both fields to match, write * for the day and {only} for the weekday"
    yield Remark(Code.EITHER_DAY, message, remedy)


def _both_days(schedule: Schedule, now: EpochSeconds) -> Remarks:
    day, weekday = schedule.expression.day, schedule.expression.weekday
    restricted = [field for field in (day, weekday) if field.mask != field.unit.full]
    starred = [field for field in restricted if field.star]
    if len(restricted) < 2 or not starred:
        return
    on_day, on_weekday = _day_words(schedule)
    name = starred[0].unit.name
    message = (
        f"the {name} field starts with *, so both day fields must match: "
        f"day {on_day} and weekday {on_weekday}"
    )
    written = [f"{_spelled(field)} for the {field.unit.name}" for field in starred]
    yield Remark(Code.BOTH_DAYS, message, f"for either field to be enough, write {' and '.join(written)}")


def _day_words(schedule: Schedule) -> tuple[str, str]:
    """Return the two day fields as they were written; a macro restricts neither."""
    words = schedule.text.split()
    return words[-3], words[-1]


def _spelled(field: Field) -> str:
    """Return a field's values without a `*`."""
    return ",".join([*runs_of(field.values), *map(str, field.marks)])


# --- steps -----------------------------------------------------------------------------------------


def _steps(schedule: Schedule, now: EpochSeconds) -> Remarks:
    words = schedule.text.split()
    for unit, word in zip((SECOND, *UNITS)[-len(words) :], words, strict=False):
        items = word.split(",")
        for item in items:
            bounds, _, step = item.partition("/")
            if not step or number_of(step) == 1:
                continue
            values = parse_field(item, unit.name, identity=schedule.identity).values
            if len(values) == 1:
                message = f"the step in {unit.name} {item} has no effect: only {values[0]} matches"
                yield Remark(Code.IDLE_STEP, message, f"write {values[0]}, or a smaller step")
            elif len(items) == 1 and _goes_round(bounds, unit) and _goes_on(unit, schedule.expression, now):
                yield from _uneven(item, unit, values, number_of(step))


def _goes_round(bounds: str, unit: Unit) -> bool:
    """Return whether a step restarts with its unit, because its range does not end before."""
    return "-" not in bounds or parse_field(bounds, unit.name, identity=ANY_IDENTITY).mask == unit.full


def _goes_on(unit: Unit, expression: Expression, now: EpochSeconds) -> bool:
    """Return whether the unit's last value can be followed by its first, so that their distance matters."""
    if unit is SECOND:
        return _has_neighbours(expression.minute)
    if unit is MINUTE:
        return _has_neighbours(expression.hour)
    if unit is HOUR:
        year = expression.days.year_from(now // DAY_SECONDS)
        return year is not None and bool(year.mask & year.mask >> 1)
    if unit is DAY:
        return expression.weekday.mask == WEEKDAY.full and _has_neighbours(expression.month)
    return unit is MONTH or expression.day.mask == DAY.full


def _has_neighbours(field: Field) -> bool:
    values, unit = set(field.values), field.unit
    return len(values) > 1 and any(unit.low + (v + 1 - unit.low) % unit.size in values for v in values)


def _uneven(item: str, unit: Unit, values: tuple[int, ...], step: int) -> Remarks:
    if unit is DAY:
        message = f"day {item} restarts each month, so the interval before day {values[0]} differs"
        yield Remark(Code.UNEVEN, message, "list the days; cron does not count across months")
        return
    for before, after in pairwise((*values, values[0])):
        pause = (after - before) % unit.size
        if pause != step:
            message = f"{unit.name} {item} is uneven: from {before} to {after} it is {pause}, not {step}"
            yield Remark(Code.UNEVEN, message, _even_remedy(unit, step))
            return


def _even_remedy(unit: Unit, step: int) -> str:
    steps = [n for n in range(2, unit.size // 2 + 1) if unit.size % n == 0]
    if step in steps:
        return f"start before {unit.low + step}, or write the end of the range"
    near = [n for n in steps if n < step][-1:] + [n for n in steps if n > step][:1]
    divisor = (
        f"use a step that divides {unit.size}, such as {' or '.join(map(str, near))}, or " if near else ""
    )
    return f"{divisor}list the {unit.name}s"


# --- changes of the clocks -------------------------------------------------------------------------


def _clocks(schedule: Schedule, now: EpochSeconds) -> Remarks:
    """Report runs that coming clock changes skip or repeat; a rate is not affected."""
    ahead = effects(schedule, now, now + HORIZON)
    hits = [effect for effect in ahead if not _runs_on(schedule, effect.change)]
    lost, doubled = [hit for hit in hits if hit.is_gap], [hit for hit in hits if not hit.is_gap]
    if lost and schedule.dst_gap == SKIP:
        message = f"runs are skipped in {schedule.timezone} when the clocks go forward: {_dates(lost)}"
        yield Remark(Code.LOST, message, 'set dst_gap to "next", or choose a time that is not skipped')
    if doubled and schedule.dst_repeat == BOTH:
        message = f"runs twice in {schedule.timezone} when the clocks go back: {_dates(doubled)}"
        yield Remark(
            Code.DOUBLED, message, 'set dst_repeat to "first", or choose a time that is not repeated'
        )


def _silent(schedule: Schedule, now: EpochSeconds) -> Remarks:
    inside = len(schedule.expression.minute.values) * len(schedule.expression.second.values)
    if schedule.dst_repeat == BOTH or inside == 1 or not _has_neighbours(schedule.expression.hour):
        return
    hits = [effect for effect in effects(schedule, now, now + HORIZON) if not effect.is_gap]
    dates = f" in {schedule.timezone}: {_dates(hits)}" if hits else ""
    message = f"runs more often than hourly, but pauses when the clocks go back{dates}"
    yield Remark(Code.SILENT, message, 'set dst_repeat to "both"')


def _runs_on(schedule: Schedule, change: Transition) -> bool:
    """Return whether runs stay no further apart than RATE from before a change until after it."""
    reach = max(-change.size, 0)
    last = schedule.plan.prev_at_or_before(change.at - reach - 1)
    for instant in seconds_between(schedule.plan, change.at - reach, None):
        if last is None or instant - last > RATE:
            return False
        if instant >= change.at + reach:
            return True
        last = instant
    return False


def _dates(hits: list[Effect]) -> str:
    return ", ".join(f"{hit.first.date()} {_times(hit)}" for hit in hits)


def _times(effect: Effect) -> str:
    first, last = clock_text(effect.first), clock_text(effect.last)
    return first if effect.count == 1 else f"{first} to {last} ({effect.count} times)"


# --- load ------------------------------------------------------------------------------------------


def _flood(schedule: Schedule, now: EpochSeconds) -> Remarks:
    words = schedule.text.split()
    units = (SECOND, *UNITS)[-len(words) :]
    for place, (word, value) in enumerate(pairwise(words)):
        unit, of = units[place].name, units[place + 1].name
        if units[place] in (SECOND, MINUTE) and word == "*" and value.isdecimal():
            once = ["0" if fine == "*" else fine for fine in words[: place + 1]]
            remedy = f"for one run write {' '.join(once + words[place + 1 :])}, or 0-59 to mean it"
            yield Remark(Code.FLOOD, f"* runs every {unit} of {of} {value}", remedy)


def _sub_minute(schedule: Schedule, now: EpochSeconds) -> Remarks:
    count = len(schedule.expression.second.values)
    if count > 1:
        message = f"runs {count} times in each minute that matches"
        yield Remark(Code.SUB_MINUTE, message, "make sure that the job and its target can handle it")


def _extra_field(entry: CrontabEntry) -> Remarks:
    word = next(iter((entry.user or entry.command).split()), "")
    if _FIELD_LIKE.fullmatch(word):
        taken = "user" if entry.user else "command"
        message = f'five fields are read, so "{word}" is taken for the {taken}'
        yield Remark(Code.EXTRA_FIELD, message, "a crontab has no seconds before a command; remove one field")


def _repeated(line: int) -> Remark:
    message = f"same times, same time zone and same command as line {line}"
    return Remark(Code.DUPLICATE, message, "remove one of the two")


Check: TypeAlias = Callable[[Schedule, EpochSeconds], Remarks]

CHECKS: tuple[Check, ...] = (
    _exhausted,
    _either_day,
    _both_days,
    _steps,
    _clocks,
    _silent,
    _flood,
    _sub_minute,
)
