"""Channels: where notifications are sent, as the operator configures them; schedules name them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import ClassVar, TypeAlias

from kron.app.redaction import Sensitive
from kron.app.settings import json_value, text_in
from kron.core.errors import InputError, InvalidOptionError, Problem
from kron.core.fields import (
    FieldReader,
    FieldTable,
    ValueType,
    invalid_value,
    parse_text,
    row,
    suggestion,
    table_of,
)
from kron.core.job.notify import HEARTBEAT, SLACK, Notify, parse_notify, shown_target
from kron.core.redaction import HIDDEN
from kron.core.value_types import DURATION, nullable, one_of

# The templates of a webhook's body.
JSON_FORMAT, SLACK_FORMAT = FORMATS = ("json", "slack")
MAX_CHANNELS, MAX_RECIPIENTS = 100, 50
# A command that runs longer is killed.
COMMAND_TIMEOUT = timedelta(seconds=30)
_SERVER = re.compile(r"(smtps?)://([^\s/:@\[\]]+|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?/?")
_ADDRESS = re.compile(r"[^\s@<>,;]+@[^\s@<>,;]+")
TEXT = nullable(ValueType(schema={"type": "string"}, parse=parse_text))


def _parse_server(value: object) -> str:
    text = parse_text(value)
    if _SERVER.fullmatch(text) is None:
        raise invalid_value("...", "must be an address such as smtp://mail.example.com:587, without a login")
    return text


def _parse_address(value: object) -> str:
    text = parse_text(value)
    if _ADDRESS.fullmatch(text) is None:
        raise invalid_value(text, "must be an e-mail address")
    return text


def _list_of(parse: Callable[[object], str]) -> Callable[[object], tuple[str, ...]]:
    def parse_all(value: object) -> tuple[str, ...]:
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list | tuple) or not 0 < len(values) <= MAX_RECIPIENTS:
            raise invalid_value(value, f"must be a list of 1 to {MAX_RECIPIENTS} strings")
        return tuple(map(parse, values))

    return parse_all


_SERVER_TYPE = ValueType(schema={"type": "string"}, parse=_parse_server)
_ADDRESS_TYPE = ValueType(schema={"type": "string"}, parse=_parse_address)
_ADDRESSES = ValueType(schema={"type": "array"}, parse=_list_of(_parse_address), write=list)  # type: ignore[arg-type]
USERS = nullable(ValueType(schema={"type": "array"}, parse=_list_of(parse_text), write=list))  # type: ignore[arg-type]
WHOSE = "the users whose schedules may name the channel; by default all"
_COMMAND = ValueType(schema={"type": "array"}, parse=_list_of(parse_text), write=list)  # type: ignore[arg-type]


def secrets_of_target(url: str) -> list[str]:
    """Return the URL of a webhook or heartbeat, and its path, which often is a secret."""
    return [text for text in (url, url.partition("://")[2].partition("/")[2]) if text]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChannel:
    """A URL that messages are posted to."""

    kind: ClassVar[str] = "webhook"
    required: ClassVar[tuple[str, ...]] = ("url",)

    url: str | None = field(default=None, metadata=row(HEARTBEAT, "where messages are posted"), repr=False)
    url_file: str | None = field(
        default=None, metadata=row(TEXT, "a file with the URL, which may be a secret")
    )
    format: str = field(
        default=JSON_FORMAT,
        metadata=row(one_of(FORMATS), "the body: `json`, or `slack` for Slack, Mattermost and similar"),
    )
    users: tuple[str, ...] | None = field(default=None, metadata=row(USERS, WHOSE))

    @property
    def address(self) -> str:
        """Return the URL, from its file if one is named."""
        address = text_in(self.url_file) if self.url_file is not None else self.url
        assert address is not None
        return address

    @property
    def shown(self) -> str:
        """Return the channel for people."""
        return f"webhook {shown_target(self.address)}"

    def secrets(self) -> list[str]:
        """Return the URL and its path."""
        return secrets_of_target(self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailChannel:
    """Recipients of messages, and the SMTP server that takes them."""

    kind: ClassVar[str] = "email"
    required: ClassVar[tuple[str, ...]] = ("server", "to", "from")

    server: str = field(
        metadata=row(_SERVER_TYPE, "`smtp://host:587` (STARTTLS where offered), or `smtps://host:465` (TLS)")
    )
    to: tuple[str, ...] = field(metadata=row(_ADDRESSES, "the recipients"))
    sender: str = field(metadata=row(_ADDRESS_TYPE, "the sender's address", words=("from",)))
    user: str | None = field(default=None, metadata=row(TEXT, "the login, if the server requires one"))
    password: str | None = field(default=None, metadata=row(TEXT, "its password"), repr=False)
    password_file: str | None = field(default=None, metadata=row(TEXT, "a file with the password"))
    authorities: str | None = field(
        default=None, metadata=row(TEXT, "a PEM file with the authorities of the server's certificate")
    )
    users: tuple[str, ...] | None = field(default=None, metadata=row(USERS, WHOSE))

    @property
    def address(self) -> tuple[str, str, int]:
        """Return the scheme, the host and the port of the server."""
        match = _SERVER.fullmatch(self.server)
        assert match is not None
        scheme, host, port = match.groups()
        return scheme, host.strip("[]"), int(port or (465 if scheme == "smtps" else 587))

    @property
    def shown(self) -> str:
        """Return the channel for people."""
        return f"e-mail to {', '.join(self.to)}"

    def login(self) -> str | None:
        """Return the password, from its file if one is named."""
        return text_in(self.password_file) if self.password_file is not None else self.password

    def secrets(self) -> list[str]:
        """Return the password."""
        return [text for text in (self.login(),) if text]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandChannel:
    """A program of the operator that gets each message on its standard input, as JSON."""

    kind: ClassVar[str] = "command"
    required: ClassVar[tuple[str, ...]] = ("command",)

    command: tuple[str, ...] = field(metadata=row(_COMMAND, "the program and its arguments; no shell"))
    timeout: timedelta = field(
        default=COMMAND_TIMEOUT, metadata=row(DURATION, "how long it may run before it is killed")
    )
    users: tuple[str, ...] | None = field(default=None, metadata=row(USERS, WHOSE))

    @property
    def shown(self) -> str:
        """Return the channel for people."""
        return f"command {self.command[0]}"

    def secrets(self) -> list[str]:
        """Return nothing: what a program needs in secret it reads itself."""
        return []


Channel: TypeAlias = WebhookChannel | EmailChannel | CommandChannel
Channels: TypeAlias = Mapping[str, Channel]
CHANNELS: dict[str, tuple[type[Channel], FieldTable]] = {
    kind.kind: (kind, table_of(kind)) for kind in (WebhookChannel, EmailChannel, CommandChannel)
}
# Fields that a problem does not quote.
_SECRET = frozenset({"url", "password", "server"})


def channel_of(target: str, channels: Channels) -> Channel | None:
    """Return the channel of a target: a configured one, or the webhook that its URL is."""
    if "://" in target:
        template = SLACK_FORMAT if target.startswith(SLACK) else JSON_FORMAT
        return WebhookChannel(url=target.removeprefix(SLACK), format=template)
    return channels.get(target)


def parse_channels(value: object) -> Channels:
    """Return the channels of a settings file, or of JSON in the environment; no secret is quoted."""
    document = json_value(value)
    if not isinstance(document, Mapping) or len(document) > MAX_CHANNELS:
        raise invalid_value("...", f"must be an object of at most {MAX_CHANNELS} channels by name")
    problems: list[Problem] = []
    channels = {}
    for name, each in document.items():
        if not isinstance(name, str) or not name.strip() or "://" in name or not name.isprintable():
            problems.append(
                Problem(str(name), None, "is not the name of a channel: use one line without ://")
            )
        elif (channel := _read_channel(name, each, problems)) is not None:
            channels[name] = channel
    if problems:
        raise invalid_value("...", "; ".join(map(str, problems)))
    return channels


def _read_channel(name: str, value: object, problems: list[Problem]) -> Channel | None:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(kind, str) or kind not in CHANNELS:
        problems.append(Problem(name, None, f"must be an object with kind: {', '.join(CHANNELS)}"))
        return None
    make, table = CHANNELS[kind]
    own: list[Problem] = []
    reader = FieldReader(value, name, own, known=("kind", *table.words))
    for word in make.required:
        if not reader.has(word) and not reader.has(f"{word}_file"):
            reader.problem(word, None, "is missing")
    for word in table.words:
        if word.endswith("_file") and reader.has(word) and reader.has(word.removesuffix("_file")):
            reader.problem(word, None, f"conflicts with {word.removesuffix('_file')}; use one of the two")
    secret = {reader.path_of(word) for word in _SECRET}
    values = table.read(reader)
    problems += [replace(each, value=None) if each.path in secret else each for each in own]
    return None if own else make(**values)  # type: ignore[arg-type]  # the rows have the types of the fields


def shown_channels(channels: Channels) -> dict[str, str]:
    """Return how each channel sends, for people."""
    return {name: _shown(channel) for name, channel in channels.items()}


def _shown(channel: Channel) -> str:
    # A file is not read to show a setting.
    if isinstance(channel, WebhookChannel) and channel.url is None:
        return f"webhook {HIDDEN}"
    return channel.shown


def _secrets(value: object) -> list[str]:
    assert isinstance(value, Mapping)
    return [text for channel in value.values() for text in channel.secrets()]


def _redacted(value: object) -> object:
    assert isinstance(value, Mapping)
    return shown_channels(value)


SENSITIVE = Sensitive(_redacted, _secrets)


# --- the default of jobs that define no notifications ---------------------------------------------------


def parse_default(value: object) -> Mapping[str, object]:
    """Return the default notifications of a settings file; no URL is quoted, since it may be a secret."""
    document = json_value(value)
    try:
        return parse_notify(document).to_dict()
    except InputError as cause:
        raise invalid_value("...", str(cause.details["reason"])) from cause


def default_of(value: Mapping[str, object] | None, channels: Channels) -> Notify | None:
    """Return the default notifications; each channel that they name must be configured."""
    if value is None:
        return None
    default = parse_notify(value)
    for name in default.channels():
        if name not in channels:
            reason = f"is not a channel of the settings; {suggestion(name, sorted(channels))}"
            raise InvalidOptionError(option="notify", value=name, reason=reason)
    return default


DEFAULT_NOTIFY = Sensitive(
    lambda value: parse_notify(value).redacted(),
    lambda value: [text for _, url in parse_notify(value).urls() for text in secrets_of_target(url)],
)
