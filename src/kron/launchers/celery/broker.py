"""A Celery broker: its address and options, and the task messages that are published to it."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from kron.core.fields import invalid_value
from kron.core.redaction import redact_url, replace_secrets, secrets_in_options, secrets_in_url

# The queue that Celery's workers consume by default.
QUEUE = "celery"
# Result backends that send each result to one client, once.
PRIVATE_BACKENDS = frozenset({"rpc", "amqp"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class CeleryTask(NamedTuple):
    """One task message."""

    name: str
    task_id: str
    queue: str
    args: list[object]
    kwargs: dict[str, object]
    headers: dict[str, object]
    # Called directly before the task is sent; what it raises is not caught.
    check: Callable[[], None] = lambda: None


# The status of a task whose result cannot be decoded; its result is the reason.
UNREADABLE = "UNREADABLE"


class CeleryState(NamedTuple):
    """The state of a task in the result backend, by Celery's name; `PENDING` is that of an unknown one."""

    status: str
    result: object = None
    traceback: str | None = None


class WorkerReplies(NamedTuple):
    """The Celery workers that answered, and which of them has which task, and in which state."""

    workers: frozenset[str]
    tasks: Mapping[str, tuple[str, str]]


class BrokerError(Exception):
    """A task was not published; with `retry` the error may be temporary."""

    def __init__(self, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry


class TaskPublisher(Protocol):
    """Publishes tasks, from any thread."""

    def publish(self, task: CeleryTask) -> None:
        """Publish a task, or raise BrokerError."""

    def leave(self) -> None:
        """Close the connection of the calling thread."""


class CeleryMonitor(Protocol):
    """Reads the state of published tasks and revokes them, from one thread."""

    def states(self, task_ids: Sequence[str]) -> dict[str, CeleryState]:
        """Return the state of each task, or raise BrokerError."""

    def ask_workers(self, task_ids: Sequence[str]) -> WorkerReplies:
        """Return which Celery workers have which of the tasks, or raise BrokerError."""

    def revoke(self, task_id: str) -> None:
        """Make every worker discard a task, and end it where it executes, or raise BrokerError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """An address, or several separated by semicolons, the default queue, and kombu's transport options.

    Address and options may hold passwords, so neither is in its `repr`; `shown` is the address for people.
    """

    url: str = field(repr=False)
    queue: str = QUEUE
    options: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def urls(self) -> list[str]:
        """Return its addresses, in the order in which they are tried."""
        return self.url.split(";")

    @property
    def shown(self) -> str:
        """Return the address without user, password and query."""
        return ";".join(map(redact_url, self.urls))

    @property
    def secrets(self) -> list[str]:
        """Return the passwords in its addresses and options."""
        inside = [text for url in self.urls for text in secrets_in_url(url)]
        return [*inside, *secrets_in_options(self.options)]

    def hide(self, text: str) -> str:
        """Return a text without the secrets of the broker."""
        return replace_secrets(text, self.secrets)


def parse_broker(value: object) -> str:
    """Return the address of a broker, or several separated by semicolons; a wrong one is not quoted."""
    if not isinstance(value, str) or not all(map(_is_address, value.split(";"))):
        raise invalid_value("...", "must be an address such as amqp://user:password@broker.example:5672/name")
    return value


def parse_backend(value: object) -> str:
    """Return the address of a result backend that every process can read; a wrong one is not quoted."""
    if not isinstance(value, str) or not _is_address(value):
        raise invalid_value("...", "must be an address such as redis://backend.example:6379/0")
    if scheme_of(value) in PRIVATE_BACKENDS:
        reason = (
            "its results reach only the process that sent the task; use redis, a database or file:///folder"
        )
        raise invalid_value(f"{scheme_of(value)}://...", reason)
    return value


def parse_options(value: object) -> Mapping[str, object]:
    """Return transport options, a JSON text in the environment; wrong ones are not quoted."""
    try:
        document = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, Mapping):
        raise invalid_value("...", "must be a JSON object")
    return document


def scheme_of(url: str) -> str:
    """Return the transport of an address."""
    return url.partition("://")[0].partition("+")[0].lower()


def _is_address(text: str) -> bool:
    if not _SCHEME.match(text) or not text.isprintable() or " " in text:
        return False
    try:
        url = urlsplit(text)
        # A password that is not encoded ends up in the port, or after it.
        return url.port != 0 and "@" not in f"{url.path}{url.query}{url.fragment}"
    except ValueError:
        return False
