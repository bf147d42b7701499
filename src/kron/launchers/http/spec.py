"""The launcher object of the kind `http`: fields, limits, redaction and traits."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import ClassVar
from urllib.parse import urlsplit

from kron.core.errors import InputError, Problem
from kron.core.fields import FieldTable, ValueType, invalid_value, parse_text, row
from kron.core.redaction import redact_url, secrets_in_url
from kron.core.time.duration import parse_duration
from kron.core.value_types import DURATION, FLAG
from kron.launchers.delivery import MAX_REQUESTS
from kron.launchers.http.egress import EgressPolicy, host_of
from kron.launchers.spec import (
    MIN_LOGGED_SECRET,
    LauncherConfig,
    Pairs,
    TableSettings,
    launcher_table,
    pairs_type,
    parse_pairs,
    redact_pairs,
)

# The bounds of a timeout.
MIN_TIMEOUT, MAX_TIMEOUT = timedelta(milliseconds=10), timedelta(hours=1)
# Headers that identify the run or frame the request; settings cannot set them.
RESERVED_HEADERS = frozenset(
    {
        "idempotency-key", "kron-attempt", "kron-fencing-token", "kron-timestamp", "kron-signature",
        "content-type", "content-length", "host", "accept-encoding", "transfer-encoding", "connection",
    }
)  # fmt: skip


def _parse_url(value: object) -> str:
    try:
        url = urlsplit(parse_text(value))
        is_valid = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except (InputError, ValueError):
        is_valid = False
    if not is_valid:
        raise invalid_value(None, "must be an address such as https://example.com/start")
    text = str(value)
    if not text.isascii() or not text.isprintable() or " " in text:
        raise invalid_value(None, "must be printable ASCII without spaces; encode other characters")
    if url.fragment:
        raise invalid_value(None, "must not have a fragment")
    return text


def _parse_headers(value: object) -> Pairs:
    pairs = parse_pairs(value)
    for name, text in pairs:
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise invalid_value(name, f'"{name}" is not the name of a header')
        if name.lower() in RESERVED_HEADERS:
            raise invalid_value(name, f"{name} is set by Kron")
        if not text.isascii() or not text.isprintable():
            raise invalid_value(name, f"the value of {name} must be printable ASCII")
    if len({name.lower() for name, _ in pairs}) < len(pairs):
        raise invalid_value(", ".join(name for name, _ in pairs), "a header is given twice")
    return pairs


def _parse_timeout(value: object) -> timedelta:
    timeout = parse_duration(value)
    if not MIN_TIMEOUT <= timeout <= MAX_TIMEOUT:
        raise invalid_value(value, "must lie between 10ms and 1h")
    return timeout


_URL = ValueType(schema={"type": "string", "format": "uri", "pattern": "^https?://"}, parse=_parse_url)
_TIMEOUT = replace(DURATION, parse=_parse_timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings(TableSettings):
    """The job is started by a POST request."""

    kind: ClassVar[str] = "http"
    table: ClassVar[FieldTable]
    unquoted: ClassVar[tuple[str, ...]] = ("url", "headers")

    url: str = field(metadata=row(_URL, "where the start is posted"))
    headers: Pairs = field(
        default=(), metadata=row(pairs_type(_parse_headers), "further headers; their values are never shown")
    )
    timeout: timedelta = field(
        default=timedelta(seconds=30), metadata=row(_TIMEOUT, "how long the response may take")
    )
    connect_timeout: timedelta = field(
        default=timedelta(seconds=5), metadata=row(_TIMEOUT, "how long the connection may take")
    )
    reports: bool = field(
        default=False, metadata=row(FLAG, "whether the executor reports the end of each run")
    )

    @property
    def launcher_kind(self) -> str:
        """Return the text that selects launcher and traits; it is stored with the job."""
        return "http:reports" if self.reports else "http"

    def redacted(self) -> dict[str, object]:
        """Return the launcher object without login, query and header values."""
        return {
            **self.to_dict(), "url": redact_url(self.url), "headers": redact_pairs(self.headers),
        }  # fmt: skip

    def secrets(self) -> list[str]:
        """Return passwords, parameters and header values."""
        values = [text for _, text in self.headers] + secrets_in_url(self.url, every_parameter=True)
        return [*secrets_in_url(self.url), *(text for text in values if len(text) >= MIN_LOGGED_SECRET)]

    def problems(self, config: LauncherConfig) -> list[Problem]:
        """Return why the egress policy refuses the URL, as far as can be decided without resolving it."""
        policy = egress_policy(config)
        fault = None if policy is None else policy.fault_of(self.url)
        return [] if fault is None else [Problem("launcher.url", host_of(self.url), fault)]


HttpSettings.table = launcher_table(HttpSettings, required=("url",), always_workflow=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """The egress policy for the requests of schedules, and how many of one tenant are in flight at once.

    Without a policy every address is allowed.
    """

    egress: EgressPolicy | None = None
    max_per_tenant: int = MAX_REQUESTS


def egress_policy(config: LauncherConfig) -> EgressPolicy | None:
    """Return the egress policy, which always allows the URL of the operator's default launcher."""
    policy, default = config.get(HttpOptions).egress, config.default
    if policy is None or not isinstance(default, HttpSettings):
        return policy
    return replace(policy, urls=policy.urls | {default.url})
