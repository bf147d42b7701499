"""A parsed cron expression: six fields and the day rule that joins them."""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kron.core.cron.field import SECOND, Field
from kron.core.cron.year import MatchingDays, matching_days

ON_THE_MINUTE = Field(SECOND, 1)

FiveFields: TypeAlias = tuple[Field, Field, Field, Field, Field]


# Immutable by type only: `frozen` took a third of the parsing time.
@dataclass(slots=True, init=False, unsafe_hash=True)
class Expression:
    """The local times that match. Equal expressions match the same times; their texts may differ."""

    second: Final[Field]
    minute: Final[Field]
    hour: Final[Field]
    day: Final[Field]
    month: Final[Field]
    weekday: Final[Field]
    timezone: Final[str | None]
    text: str = field(compare=False)
    dialect: str = field(compare=False)
    # The days that match, shared by every expression with the same day rule.
    days: MatchingDays = field(compare=False, repr=False)

    def __init__(
        self,
        text: str,
        dialect: str,
        fields: FiveFields,
        second: Field = ON_THE_MINUTE,
        timezone: str | None = None,
    ) -> None:
        """Take the five fields in cron's order."""
        self.minute, self.hour, self.day, self.month, self.weekday = fields
        self.second = second
        self.timezone = timezone
        self.text = text
        self.dialect = dialect
        _, _, day, month, weekday = fields
        either = not (day.star or weekday.star)
        self.days = matching_days(day.mask, day.marks, month.mask, weekday.mask, weekday.marks, either)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the five fields in order, or six with seconds."""
        five = (self.minute, self.hour, self.day, self.month, self.weekday)
        return five if self.second == ON_THE_MINUTE else (self.second, *five)

    @property
    def either(self) -> bool:
        """Return whether one matching day field is sufficient.

        If either day field starts with `*` both must match, else one is sufficient (Vixie cron; for the
        strict dialect, where `*` is alone, this is SPEC 1: Day-of-Month/Day-of-Week Semantics).
        """
        return not (self.day.star or self.weekday.star)

    def describe(self) -> str:
        """Return one English sentence, without a full stop, that describes exactly the matching times."""
        # Imported on use, so that parsing does not load it.
        from kron.core.cron.explain import describe_expression

        return describe_expression(self)

    def __str__(self) -> str:
        """Return the canonical text, from which an equal expression can be parsed."""
        prefix = f"CRON_TZ={self.timezone} " if self.timezone else ""
        return prefix + " ".join(map(str, self.fields))
