"""A schedule: a cron expression interpreted in a time zone."""

from collections.abc import Iterator, Sequence
from dataclasses import FrozenInstanceError
from datetime import datetime
from functools import lru_cache
from typing import NoReturn

from kron.core.cron.dialect import DIALECTS, EXTENDED, REBOOT, needs_identity, parse
from kron.core.cron.expression import Expression
from kron.core.cron.field import DAY as MONTH_DAY
from kron.core.cron.field import HOUR, MINUTE, MONTH, WEEKDAY, Field
from kron.core.cron.timeline import BOTH, GAP_CHOICES, REPEAT_CHOICES, SKIP
from kron.core.cron.walk import Plan
from kron.core.errors import CronCalculationError, InvalidOptionError, UnknownTimezoneError, check_choice
from kron.core.time.instant import DAY, EPOCH, EpochSeconds, datetime_of, rfc3339, seconds_from, seconds_of
from kron.core.time.zone import zone_of

UTC = "UTC"
# An inlined `datetime_of`, called for every result.
_at, _UTC = datetime.fromtimestamp, EPOCH.tzinfo
_write = object.__setattr__
# 30 February: no year has a day that matches.
_NO_DAY = (
    Field(MINUTE, 1),
    Field(HOUR, 1),
    Field(MONTH_DAY, 1 << 30),
    Field(MONTH, 1 << 2),
    Field(WEEKDAY, WEEKDAY.full, star=True),
)


class Schedule:
    """A cron expression in a time zone, with its DST options.

    `timezone` is an IANA name, by default that of the expression's `CRON_TZ=` prefix or else UTC.
    `dialect` is ``extended`` or ``posix``; `identity` is what `H` is derived from. By default the
    schedule is literal: a skipped wall time has no occurrence and a repeated one has two.
    `dst_gap="next"` moves skipped times to the end of the gap; `dst_repeat="first"` or ``"last"`` keeps
    one of two.
    """

    __slots__ = ("_given", "plan")

    plan: Plan
    _given: tuple[str, str, str, str | None, str, str]

    def __init__(
        self,
        text: str,
        timezone: str | None = None,
        *,
        dialect: str = EXTENDED,
        identity: str | None = None,
        dst_gap: str = SKIP,
        dst_repeat: str = BOTH,
    ) -> None:
        """Validate all arguments, so that every instance is valid."""
        if not (dialect in DIALECTS and dst_gap in GAP_CHOICES and dst_repeat in REPEAT_CHOICES):
            check_choice("dialect", dialect, DIALECTS)
            check_choice("dst_gap", dst_gap, GAP_CHOICES)
            check_choice("dst_repeat", dst_repeat, REPEAT_CHOICES)
        if timezone is not None and not isinstance(timezone, str):
            raise UnknownTimezoneError(timezone=timezone)
        if not isinstance(text, str):
            parse(text, dialect)
        if identity is not None:
            _check_identity(identity)
        # Without `H` the identity has no effect, and omitting it lets jobs share the plan.
        seed = identity if identity is not None and needs_identity(text) else None
        plan = _plan_of(text, timezone, dialect, seed, dst_gap, dst_repeat)
        _write(self, "plan", plan)
        _write(self, "_given", (text, plan.zone.key, dialect, identity, dst_gap, dst_repeat))

    @classmethod
    def at_boot(cls, timezone: str | None = None, *, identity: str | None = None) -> "Schedule":
        """Return the schedule ``@reboot``, which has no times: its job starts when the host boots."""
        schedule = object.__new__(cls)
        plan = Plan(Expression(REBOOT, EXTENDED, _NO_DAY), zone_of(timezone or UTC), SKIP, BOTH)
        _write(schedule, "plan", plan)
        _write(schedule, "_given", (REBOOT, plan.zone.key, EXTENDED, identity, SKIP, BOTH))
        return schedule

    @property
    def is_boot(self) -> bool:
        """Return whether this is ``@reboot``."""
        return self._given[0] == REBOOT

    @property
    def text(self) -> str:
        """Return the expression as given."""
        return self._given[0]

    @property
    def timezone(self) -> str:
        """Return the key of the zone."""
        return self._given[1]

    @property
    def dialect(self) -> str:
        """Return the dialect of the text."""
        return self._given[2]

    @property
    def identity(self) -> str | None:
        """Return the identity that `H` is derived from."""
        return self._given[3]

    @property
    def dst_gap(self) -> str:
        """Return the option for skipped times: ``skip`` or ``next``."""
        return self._given[4]

    @property
    def dst_repeat(self) -> str:
        """Return the option for repeated times: ``both``, ``first`` or ``last``."""
        return self._given[5]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self._given == other._given if isinstance(other, Schedule) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._given)

    def __repr__(self) -> str:
        names = ("text", "timezone", "dialect", "identity", "dst_gap", "dst_repeat")
        given = ", ".join(f"{name}={value!r}" for name, value in zip(names, self._given, strict=True))
        return f"Schedule({given})"

    def __reduce__(self) -> tuple[object, ...]:
        return _made, self._given

    @property
    def expression(self) -> Expression:
        """Return the parsed expression."""
        return self.plan.expression

    def next_after(self, instant: datetime) -> datetime:
        """Return the first occurrence strictly later than an aware datetime, in UTC."""
        try:
            # An inlined `seconds_of` without its checks: an invalid instant is rejected below.
            since = instant - EPOCH
            found = self.plan.next_after(since.days * DAY + since.seconds)
        except (TypeError, AttributeError, OverflowError):
            found = None
        if found is None:
            raise self._exhausted(instant, "next")
        return _at(found, _UTC)

    def prev_at_or_before(self, instant: datetime) -> datetime:
        """Return the last occurrence at or before an aware datetime, in UTC."""
        found = self.plan.prev_at_or_before(seconds_of(instant))
        if found is None:
            raise self._exhausted(instant, "previous")
        return _at(found, _UTC)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the occurrences in `[start, end)`, oldest first, computed lazily."""
        first, stop = seconds_from(start), seconds_from(end)
        return map(datetime_of, seconds_between(self.plan, first, stop))

    @property
    def sentence(self) -> str:
        """Return one English sentence, without a full stop, that describes exactly the times."""
        return "At every boot of the host" if self.is_boot else self.expression.describe()

    def describe(self) -> str:
        """Return one English sentence with the times, the zone, and the non-default DST options."""
        from kron.core.cron.explain import describe_expression

        if self.is_boot:
            return self.sentence
        sentence = describe_expression(self.expression, self.timezone)
        if self.dst_gap != SKIP:
            sentence += "; times skipped by a clock change run once, right after it"
        if self.dst_repeat != BOTH:
            sentence += f"; of a repeated time only the {self.dst_repeat} runs"
        return sentence

    def _exhausted(self, instant: datetime, direction: str) -> CronCalculationError:
        return CronCalculationError(
            expression=self.text,
            current_time=rfc3339(seconds_of(instant)),
            cause=LookupError(
                f'"{self.text}" has no {direction} occurrence in {self.timezone} within the calendar'
            ),
        )


def next_times(schedules: Sequence[Schedule], after: datetime) -> list[datetime | None]:
    """Return the next occurrence of many schedules at one instant, computed once per shared plan."""
    found = next_seconds([schedule.plan for schedule in schedules], seconds_of(after))
    known = {second: datetime_of(second) for second in set(found) if second is not None}
    return list(map(known.get, found))  # type: ignore[arg-type]


def next_seconds(plans: Sequence[Plan], after: EpochSeconds) -> list[EpochSeconds | None]:
    """Return the next occurrence of many plans at one instant, in whole seconds, computed once per plan."""
    known = {plan: plan.next_after(after) for plan in set(plans)}
    return list(map(known.__getitem__, plans))


def seconds_between(plan: Plan, start: EpochSeconds, end: EpochSeconds | None) -> Iterator[EpochSeconds]:
    """Yield a plan's occurrences in `[start, end)`, or all from `start`, in whole seconds."""
    found = plan.next_after(start - 1)
    while found is not None and (end is None or found < end):
        yield found
        found = plan.next_after(found)


def _check_identity(identity: object) -> None:
    # Nothing printable breaks a line or is invalid Unicode.
    if isinstance(identity, str) and identity.isprintable() and identity.strip():
        return
    # The fields of definitions take a tenth of the import of a schedule.
    from kron.core.fields import identity_fault

    if fault := identity_fault(identity):
        raise InvalidOptionError(option="identity", value=ascii(identity)[1:-1], reason=fault)


def _made(
    text: str, timezone: str, dialect: str, identity: str | None, dst_gap: str, dst_repeat: str
) -> Schedule:
    if text == REBOOT:
        return Schedule.at_boot(timezone, identity=identity)
    return Schedule(
        text, timezone, dialect=dialect, identity=identity, dst_gap=dst_gap, dst_repeat=dst_repeat
    )


@lru_cache(maxsize=8192)
def _plan_of(
    text: str, timezone: str | None, dialect: str, identity: str | None, dst_gap: str, dst_repeat: str
) -> Plan:
    expression = parse(text, dialect, identity=identity)
    prefix = expression.timezone
    if prefix and timezone is not None and prefix != timezone:
        reason = f"the expression says CRON_TZ={prefix}; remove one of the two"
        raise InvalidOptionError(option="timezone", value=timezone, reason=reason)
    zone = zone_of(timezone if timezone is not None else prefix or UTC)
    return Plan(expression, zone, dst_gap, dst_repeat)
