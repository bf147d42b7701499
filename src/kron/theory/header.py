"""The first line of a trace: its version, its time unit, and the pulses that the checker derives."""

from collections.abc import Mapping
from dataclasses import dataclass

from kron.core.errors import InvalidTraceError, UnknownTimezoneError
from kron.core.time.zone import FIRST_PROBE, LAST_PROBE, zone_of
from kron.theory.event import Kind

VERSION = 1
# Units per second; steps have no relation to seconds.
UNITS: Mapping[str, int | None] = {"ms": 1000, "s": 1, "step": None}
DERIVABLE = (Kind.MINUTE_START, Kind.DUE, Kind.RETRY_DUE)
CIVIL = frozenset({Kind.MINUTE_START, Kind.DUE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of a trace.

    `derive` names the pulses that the checker derives; `timezone` is the zone whose minutes they
    follow. `computed` is False in traces without Compute events.
    """

    unit: str = "ms"
    derive: frozenset[Kind] = frozenset()
    timezone: str = "UTC"
    computed: bool = True

    @property
    def per_second(self) -> int | None:
        """Return the units per second, None for steps."""
        return UNITS[self.unit]

    @property
    def civil(self) -> bool:
        """Return whether minutes and dues are derived; a minute is a due of a task that always exists."""
        return not self.derive.isdisjoint(CIVIL)

    @property
    def calendar(self) -> range | None:
        """Return the times for which minutes can be derived, None if no minutes are derived."""
        if not self.civil or self.per_second is None:
            return None
        return range(FIRST_PROBE * self.per_second, LAST_PROBE * self.per_second)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of the header."""
        fields: dict[str, object] = {"kron_trace": VERSION, "unit": self.unit}
        if self.derive:
            fields["derive"] = [str(kind) for kind in DERIVABLE if kind in self.derive]
            fields["timezone"] = self.timezone
        if not self.computed:
            fields["compute"] = "none"
        return fields


def header_of(value: object, line: int) -> Header:
    """Parse the header of a trace, or raise InvalidTraceError."""
    if not isinstance(value, dict) or "kron_trace" not in value:
        raise _invalid(line, 'the first line is not a header such as {"kron_trace": 1, "unit": "ms"}')
    version = value["kron_trace"]
    if type(version) is not int or version != VERSION:
        raise _invalid(line, f"unknown format version {version!r}; supported: {VERSION}")
    unit = value.get("unit", "ms")
    if not isinstance(unit, str) or unit not in UNITS:
        raise _invalid(line, f'unit is {unit!r}; use "ms", "s" or "step"')
    compute = value.get("compute")
    if compute not in (None, "none"):
        raise _invalid(line, f'compute is {compute!r}; the only value is "none"')
    derive = _derive_of(value.get("derive", []), line)
    if unit == "step" and not derive.isdisjoint(CIVIL):
        raise _invalid(line, 'a trace in steps has no minutes: "derive" can only name "RetryDue"')
    zone = _zone_of(value.get("timezone", "UTC"), line)
    return Header(unit=unit, derive=derive, timezone=zone, computed=compute is None)


def _derive_of(value: object, line: int) -> frozenset[Kind]:
    if not isinstance(value, list):
        raise _invalid(line, '"derive" is not a list')
    known = {str(kind): kind for kind in DERIVABLE}
    for name in value:
        if not isinstance(name, str) or name not in known:
            raise _invalid(line, f"{name!r} cannot be derived; {', '.join(known)} can")
    return frozenset(known[name] for name in value)


def _zone_of(value: object, line: int) -> str:
    try:
        return zone_of(value if isinstance(value, str) else repr(value)).key
    except UnknownTimezoneError as cause:
        raise _invalid(line, str(cause)) from cause


def _invalid(line: int, reason: str) -> InvalidTraceError:
    return InvalidTraceError(line=line, reason=reason)
