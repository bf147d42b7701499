"""Notifications of a job: which events are sent, and where to (the field `notify` of a definition)."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

from kron.core.choice import Choice
from kron.core.fields import (
    LINE_BREAKS,
    FieldReader,
    Schema,
    ValueType,
    choice_of,
    invalid_value,
    parse_text,
    part,
    row,
    table_of,
)
from kron.core.redaction import HIDDEN
from kron.core.time.instant import MILLISECOND
from kron.core.value_types import DURATION, nullable

Value = TypeVar("Value")
# Targets of one job, and the longest name or URL of one.
MAX_TARGETS, MAX_TARGET = 20, 2_000
# An encrypted URL, as a store keeps it: its redacted form, and the encrypted one as its fragment.
_SEALED = re.compile(r"([^#]+)#(v[0-9]+\.[0-9a-f]+\.[A-Za-z0-9_=-]+)")
# The template of a webhook stands before its URL; without one the body is plain JSON.
SLACK = "slack+"
_URL = re.compile(
    r"https?://(?:[^/?#@]*@)?(\[[0-9a-f:.]+\]|[^/?#:@\[\]]+)(:[0-9]{1,5})?([/?].*)?", re.IGNORECASE
)


class NotifyEvent(Choice):
    """An event of a job that can be notified."""

    FAILED = "failed"
    MISSED = "missed"
    RECOVERED = "recovered"
    LATE = "late"
    PAUSED_AFTER_FAILURES = "paused_after_failures"


NOTIFIED = tuple(event for event in NotifyEvent if event is not NotifyEvent.LATE)
LATE_AFTER = timedelta(minutes=1)


def is_url(target: str) -> bool:
    """Say whether a target is the URL of a webhook, and not the name of a channel."""
    return "://" in target


def shown_target(target: str) -> str:
    """Return a target for people: of a URL only its scheme and host, because its path is often a secret."""
    if not is_url(target):
        return target
    match = _URL.fullmatch(target.removeprefix(SLACK))
    host = "" if match is None else f"{match[1]}{match[2] or ''}"
    return f"{target.partition('://')[0]}://{host}/{HIDDEN}"


def sealed_target(target: str, sealed: str) -> str:
    """Return a target as a store keeps it if its URL is encrypted."""
    return f"{shown_target(target)}#{sealed}"


def sealed_part(target: str) -> str | None:
    """Return the encrypted URL of a target; None if its URL is not encrypted."""
    match = _SEALED.fullmatch(target)
    return None if match is None else match[2]


def _parse_url(value: object) -> str:
    text = parse_text(value)
    if (match := _SEALED.fullmatch(text)) and HIDDEN in match[1]:
        return text
    if not text.isascii() or not text.isprintable() or " " in text or len(text) > MAX_TARGET:
        raise invalid_value("...", f"must be printable ASCII without spaces, up to {MAX_TARGET} characters")
    if "#" in text or _URL.fullmatch(text) is None:
        raise invalid_value("...", "must be an address such as https://example.com/hook, without a fragment")
    return text


def _parse_target(value: object) -> str:
    text = parse_text(value)
    if is_url(text):
        _parse_url(text.removeprefix(SLACK))
    elif not text.strip() or not LINE_BREAKS.isdisjoint(text) or len(text) > MAX_TARGET:
        raise invalid_value(text, "must be the name of a channel, or the URL of a webhook")
    return text


def _listed(parse: Callable[[object], str], most: int) -> Callable[[object], tuple[str, ...]]:
    """Return a parser of one value or a list of them, each once."""

    def parse_all(value: object) -> tuple[str, ...]:
        values = value if isinstance(value, list | tuple) else [value]
        if len(values) > most:
            raise invalid_value(f"{len(values)} values", f"has more than {most} values")
        return tuple(dict.fromkeys(parse(each) for each in values))

    return parse_all


def _list_type(item: Schema, parse: Callable[[object], str], most: int) -> ValueType:
    parse_all = _listed(parse, most)
    schema: Schema = {"oneOf": [item, {"type": "array", "items": item, "maxItems": most}]}
    return nullable(
        ValueType(
            schema=schema,
            parse=parse_all,
            check=parse_all,
            write=lambda value: [str(each) for each in value] if isinstance(value, tuple) else value,
            written={"type": "array", "items": {"type": "string"}},
        )
    )


_EVENT = choice_of({event.value: event for event in NotifyEvent})
TARGETS = _list_type({"type": "string", "examples": ["ops"]}, _parse_target, MAX_TARGETS)
EVENTS = _list_type({"enum": [event.value for event in NotifyEvent]}, _EVENT, len(NotifyEvent))
HEARTBEAT = nullable(
    ValueType(
        schema={"type": "string", "pattern": "^https?://", "examples": ["https://hc-ping.com/your-uuid"]},
        parse=_parse_url,
        check=_parse_url,
        written={"type": "string"},
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """The notifications of one job; a field that is None takes the default of its front."""

    to: tuple[str, ...] | None = field(
        default=None,
        metadata=row(
            TARGETS,
            "names of channels, or URLs of webhooks; `slack+https://...` posts in Slack's format, any other "
            "URL plain JSON; an empty list sends nothing",
            sparse=True,
        ),
    )
    on: tuple[NotifyEvent, ...] | None = field(
        default=None,
        metadata=row(
            EVENTS,
            "the events that are sent: `failed`, `missed`, `recovered` (a success after failures), `late`, "
            "`paused_after_failures`; by default all except `late`",
            sparse=True,
        ),
    )
    late_after: timedelta | None = field(
        default=None,
        metadata=row(
            nullable(DURATION),
            "a start later than this after its fire time is `late`; by default 1m",
            sparse=True,
        ),
    )
    heartbeat: str | None = field(
        default=None,
        metadata=row(
            HEARTBEAT,
            "a URL that is requested for each attempt: with `/start` appended when it starts, as it is when "
            "it succeeds, with `/fail` appended when it fails",
            sparse=True,
        ),
    )

    def __post_init__(self) -> None:
        """Check every value; one target or event may be given without a list."""
        NOTIFY.check(self)

    def to_dict(self) -> dict[str, object]:
        """Return the fields that are given."""
        return NOTIFY.write(self)

    def redacted(self) -> dict[str, object]:
        """Return the fields that are given, with URLs reduced to their hosts."""
        fields = self.to_dict()
        if self.to is not None:
            fields["to"] = list(map(shown_target, self.to))
        if self.heartbeat is not None:
            fields["heartbeat"] = shown_target(self.heartbeat)
        return fields

    def urls(self) -> list[tuple[str, str]]:
        """Return the URLs that are requested, each with the name of its field."""
        urls = [("to", target.removeprefix(SLACK)) for target in self.to or () if is_url(target)]
        return urls + ([] if self.heartbeat is None else [("heartbeat", self.heartbeat)])

    def hidden(self) -> list[str]:
        """Return the fields with a URL that was redacted, so that it cannot be requested."""
        return [name for name, url in self.urls() if HIDDEN in url and sealed_part(url) is None]

    def encrypted(self) -> list[str]:
        """Return the fields with an encrypted URL, which only a store may have."""
        return [name for name, url in self.urls() if sealed_part(url) is not None]

    def with_urls(self, change: Callable[[str], str]) -> "Notify":
        """Return the same notifications with each URL changed."""
        to = None if self.to is None else tuple(change(each) if is_url(each) else each for each in self.to)
        return replace(self, to=to, heartbeat=None if self.heartbeat is None else change(self.heartbeat))

    def revealed(self, stored: "Notify") -> "Notify":
        """Return the same notifications, with each redacted URL as the stored ones have it."""
        known = {shown_target(target): target for target in stored.to or ()}
        to = None if self.to is None else tuple(known.get(target, target) for target in self.to)
        heartbeat = self.heartbeat
        if heartbeat is not None and stored.heartbeat and heartbeat == shown_target(stored.heartbeat):
            heartbeat = stored.heartbeat
        return replace(self, to=to, heartbeat=heartbeat)

    def channels(self) -> list[str]:
        """Return the names of the channels."""
        return [target for target in self.to or () if not is_url(target)]


IS_REDACTED = f"is redacted: give the whole URL instead of {HIDDEN}"
NOTIFY = table_of(Notify)
NO_NOTIFY = Notify()


def read_notify(reader: FieldReader) -> Notify:
    """Return the notifications of a definition; a problem does not quote a URL, which may be a secret."""
    noted = len(reader.problems)
    notify = NOTIFY.build(reader, Notify)
    secret = {reader.path_of("to"), reader.path_of("heartbeat")}
    reader.problems[noted:] = [
        replace(problem, value=None) if problem.path in secret else problem
        for problem in reader.problems[noted:]
    ]
    return notify


NOTIFY_TYPE = part(NOTIFY, read_notify)


def parse_notify(value: object) -> Notify:
    """Return notifications from plain data, or raise with every problem."""
    notify = NOTIFY_TYPE.parse(value)
    assert isinstance(notify, Notify)
    return notify


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRules:
    """The notifications in force for one job, with every default filled in."""

    to: tuple[str, ...]
    on: frozenset[NotifyEvent]
    late_ms: int
    heartbeat: str | None


def rules_in_force(own: Notify, default: Notify) -> NotifyRules | None:
    """Return the rules of a job that defines `own`, by default `default`; None if nothing is ever sent."""
    to = _first((own.to, default.to), ())
    heartbeat = own.heartbeat or default.heartbeat
    if not to and heartbeat is None:
        return None
    return NotifyRules(
        to=to,
        on=frozenset(_first((own.on, default.on), NOTIFIED)),
        late_ms=_first((own.late_after, default.late_after), LATE_AFTER) // MILLISECOND,
        heartbeat=heartbeat,
    )


def _first(values: Iterable[Value | None], default: Value) -> Value:
    return next((value for value in values if value is not None), default)
