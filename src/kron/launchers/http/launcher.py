"""The http launcher: each run is started by a signed POST request to an executor."""

import asyncio
import hmac
import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import NamedTuple

from kron.core.errors import InputError, InvalidOptionError
from kron.core.plan.compiled import cached_by_length, cached_by_text
from kron.core.plan.report import Launch
from kron.core.redaction import redact_url, replace_secrets, secrets_in_url
from kron.core.time.instant import rfc3339
from kron.launchers.backoff import Backoff
from kron.launchers.delivery import (
    DEFAULT_BACKOFF,
    MAX_REQUESTS,
    MAX_RUN_ID,
    DeliveryResult,
    RemoteLauncher,
    delivery_traits,
)
from kron.launchers.fair_queue import NO_TARGET
from kron.launchers.http.client import (
    Connection,
    ConnectTimeoutError,
    EgressError,
    HttpClient,
    HttpTarget,
    request_head,
    target_of,
)
from kron.launchers.http.egress import EgressPolicy
from kron.launchers.http.response import Response
from kron.launchers.http.spec import HttpOptions, HttpSettings, egress_policy
from kron.launchers.launch import check_lease, plain_request_of, start_arguments, tenant_of, tidy
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import LauncherContext, LauncherKind, settings_parser
from kron.ports import Clock

TIMESTAMP, SIGNATURE = "Kron-Timestamp", "Kron-Signature"
VERSION = "v1="
PURPOSE = b"kron signing key 1\n"
# The largest difference between the clocks of both sides, and the largest age of a request, in seconds.
TOLERANCE_S = 300
_settings_of = settings_parser(HttpSettings)
# How long the body of a response is waited for.
BODY_S = 5.0
# How much of a response an error quotes.
MAX_QUOTED = 200
# Statuses of the 4xx range after which a retry makes sense.
RETRIED = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
# Thousands of launches share the same settings; this many different ones are cached.
MAX_TEMPLATES = 1_024
# Headers that Kron sets on some requests only; the settings' values hold for the others.
SOMETIMES_SET = {"x-request-id": "X-Request-Id", "kron-run-token": "Kron-Run-Token"}


class RequestTemplate(NamedTuple):
    """The parts of a request that all runs with the same settings share.

    `defaults` are headers that a run's own headers replace. `shown` is the URL for people.
    """

    target: HttpTarget
    head: str
    defaults: Mapping[str, str]
    shown: str
    secrets: tuple[str, ...]

    def redacted(self, text: str) -> str:
        """Return a text without the secrets of the settings."""
        return replace_secrets(text, self.secrets)


class HttpLauncher(RemoteLauncher):
    """POSTs the start of each run; any 2xx response accepts it.

    `egress` limits the hosts that requests go to. With a `secret` every request is signed.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        reports: bool = False,
        backoff: Backoff = DEFAULT_BACKOFF,
        max_requests: int = MAX_REQUESTS,
        egress: EgressPolicy | None = None,
        secret: bytes | None = None,
    ) -> None:
        super().__init__(clock, self._deliver, reports=reports, backoff=backoff, max_requests=max_requests)
        self._sender = StartSender(clock, egress=egress, secret=secret)

    def target_of(self, launch: Launch) -> str:
        """Return the server that a request goes to."""
        return _server_of(launch.job.launcher)

    async def _deliver(self, launch: Launch) -> DeliveryResult:
        return await self._sender.send(launch, _settings_of(launch.job.launcher))

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or abandon them unreported: the next owner launches them again."""
        await super().close(wait=wait)
        self._sender.close()


@cached_by_text(MAX_TEMPLATES)
def _server_of(launcher: str) -> str:
    try:
        scheme, host, port, _ = template_of(_settings_of(launcher)).target.origin
    except (InputError, ValueError):
        return NO_TARGET
    return f"{scheme}://{host}:{port}"


class StartSender:
    """Sends the request of a launch and interprets its response."""

    def __init__(
        self,
        clock: Clock,
        *,
        egress: EgressPolicy | None = None,
        secret: bytes | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._clock = clock
        self._secret = secret
        self.client = HttpClient(egress=egress, tls=tls)

    async def send(self, launch: Launch, settings: HttpSettings) -> DeliveryResult:
        """Send one request; network errors and timeouts are retryable."""
        template = template_of(settings)
        shown, total_s = template.shown, settings.timeout.total_seconds()
        connect_s = settings.connect_timeout.total_seconds()
        try:
            request = self._request(launch, settings, template)
            async with asyncio.timeout(total_s):
                connection, response = await self.client.send(
                    request,
                    template.target,
                    connect_s=connect_s,
                    check=partial(check_lease, launch),
                    tenant=tenant_of(launch),
                )
        except ConnectTimeoutError:
            error = f"{shown} did not answer within {connect_s:g} s"
        except TimeoutError:
            error = f"{shown} did not answer within {total_s:g} s"
        except EgressError as cause:
            return DeliveryResult(template.redacted(f"{shown} is not allowed: {cause}"))
        except OSError as cause:
            error = f"{shown} cannot be reached: {type(cause).__name__}: {cause}".removesuffix(": ")
        except ValueError as cause:
            return DeliveryResult(template.redacted(f"{shown} cannot be requested: {cause}"))
        else:
            await self._finish(connection, response, min(total_s, BODY_S))
            return result_of(template, response, self._clock.now())
        return DeliveryResult(template.redacted(error), retry=True)

    def _request(self, launch: Launch, settings: HttpSettings, template: RequestTemplate) -> bytes:
        # Headers and body have the same interval, computed once.
        launch = launch._replace(interval=launch.data_interval)
        headers, payload = headers_of(launch), launch.payload
        text = json.dumps(start_arguments(launch, settings)) if payload is None else payload.document
        body = text.encode()
        if self._secret is not None:
            # The operator's executor setting has no user; schedules and tasks of DAGs have their owner's.
            key = signing_key_of(self._secret, settings.user_id)
            headers |= signed(key, body, now=int(self._clock.now().timestamp()))
            headers["Kron-Run-Token"] = run_token_of(self._secret, launch.run.key)
        return request_bytes(template, headers, body)

    async def _finish(self, connection: Connection, response: Response, seconds: float) -> None:
        """Read the body as far as it arrives in time; the status counts without it."""
        if not response.is_over:
            with suppress(OSError):
                async with asyncio.timeout(seconds):
                    await connection.read_rest(response)
        self.client.release(connection, response)

    def close(self) -> None:
        """Close the idle connections."""
        self.client.close()


def _length_of(settings: HttpSettings) -> int:
    return len(settings.url) + sum(len(name) + len(text) for name, text in settings.headers)


@cached_by_length(MAX_TEMPLATES, _length_of)
def template_of(settings: HttpSettings) -> RequestTemplate:
    """Return the template of the requests with these settings."""
    target = target_of(settings.url)
    sent = {SOMETIMES_SET.get(name.lower(), name): text for name, text in settings.headers}
    defaults = {name: sent.pop(name) for name in SOMETIMES_SET.values() if name in sent}
    if target.login is not None:
        sent = {name: text for name, text in sent.items() if name.lower() != "authorization"}
        sent["Authorization"] = target.login
    query = settings.url.partition("?")[2]
    values = (text for _, text in settings.headers)
    secrets = (*secrets_in_url(settings.url, every_parameter=True), query, *values)
    shown = redact_url(settings.url).partition("?")[0]
    return RequestTemplate(target, request_head("POST", target, sent), defaults, shown, secrets)


def request_bytes(template: RequestTemplate, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return a request as it is sent."""
    lines = "".join([f"{name}: {text}\r\n" for name, text in {**template.defaults, **headers}.items()])
    return f"{template.head}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def headers_of(launch: Launch) -> dict[str, str]:
    """Return the headers that identify the run and the request that created it."""
    request_id, interval = plain_request_of(launch), launch.data_interval
    return {
        **({} if request_id is None else {"X-Request-Id": request_id}),
        "Content-Type": "application/json",
        # A compressed response could expand without bound.
        "Accept-Encoding": "identity",
        "Idempotency-Key": launch.run.key,
        "Kron-Attempt": str(launch.run.attempt),
        "Kron-Fencing-Token": str(launch.run.token),
        "Kron-Data-Interval-Start": rfc3339(interval.start),
        "Kron-Data-Interval-End": rfc3339(interval.end),
    }


def result_of(template: RequestTemplate, response: Response, now: datetime) -> DeliveryResult:
    """Return what a response means: 2xx accepts, 3xx and most of 4xx are final, others are retryable."""
    status, body = response.status, bytes(response.body)
    if 200 <= status < 300:
        return DeliveryResult(run_id=_run_id_in(body))
    retry = status in RETRIED or not 300 <= status < 500
    quoted = " ".join(tidy(body[: 4 * MAX_QUOTED].decode(errors="replace"), MAX_QUOTED).split())
    if 300 <= status < 400:
        quoted = "redirects are not followed; use the final URL"
    error = f"{template.shown} answered {status} {_phrase_of(status)}".rstrip()
    error += f": {quoted}" if quoted else ""
    after_s = _retry_after_s(response.headers.get("retry-after"), now)
    return DeliveryResult(template.redacted(error), retry=retry, retry_after_s=after_s)


def _phrase_of(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else ""


def _run_id_in(body: bytes) -> str | None:
    """Return the executor's name of the run, if the response has a valid one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    name = document.get("run_id") if isinstance(document, dict) else None
    if isinstance(name, bool) or not isinstance(name, str | int):
        return None
    text = str(name)
    return text if 0 < len(text) <= MAX_RUN_ID and text == tidy(text) else None


def _retry_after_s(text: str | None, now: datetime) -> float:
    """Return the seconds of a Retry-After header; 0 without a valid one."""
    if text is None:
        return 0.0
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    return 0.0


# --- signatures --------------------------------------------------------------------------------------


def signing_key_of(secret: bytes, user_id: str | None) -> bytes:
    """Return the key that signs the starts of a user's schedules; without a user, the secret itself.

    A user's executor has only that user's key, so that no other user's start looks like one of theirs.
    """
    if user_id is None:
        return secret
    return hmac.new(secret, PURPOSE + user_id.encode(), sha256).hexdigest().encode()


def signed(secret: bytes, body: bytes, *, now: int) -> dict[str, str]:
    """Return the headers that sign a body at an instant in seconds since 1970.

    `Kron-Timestamp` is the instant; `Kron-Signature` is `v1=` and the hexadecimal HMAC-SHA256 of the instant,
    a full stop and the body.
    """
    return {TIMESTAMP: str(now), SIGNATURE: VERSION + _digest(secret, str(now), body)}


def is_signed(
    secret: bytes, headers: Mapping[str, str], body: bytes, *, now: int, tolerance: int = TOLERANCE_S
) -> bool:
    """Return whether a request was signed with a secret, and recently; `now` is in seconds."""
    lower = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = lower.get(TIMESTAMP.lower(), ""), lower.get(SIGNATURE.lower(), "")
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 15:
        return False
    expected = VERSION + _digest(secret, timestamp, body)
    is_recent = abs(now - int(timestamp)) <= tolerance
    return hmac.compare_digest(expected.encode(), signature.encode(errors="replace")) and is_recent


def _digest(secret: bytes, timestamp: str, body: bytes) -> str:
    if not secret or secret.endswith(b"\0"):
        # HMAC pads keys with NUL bytes, so such a secret is the same key as a shorter one.
        reason = "must not be empty, nor end with a NUL byte"
        raise InvalidOptionError(option="secret", value="...", reason=reason)
    return hmac.new(secret, timestamp.encode() + b"." + body, sha256).hexdigest()


def _build(launcher_kind: str, context: LauncherContext) -> HttpLauncher:
    return HttpLauncher(
        context.clock,
        reports=HTTP.traits[launcher_kind].reports,
        max_requests=context.config.get(HttpOptions).max_per_tenant,
        egress=egress_policy(context.config),
        secret=context.secret,
    )


HTTP = LauncherKind(
    name=HttpSettings.kind,
    read=HttpSettings.read,
    schema=HttpSettings.schema(),
    traits={"http": delivery_traits(reports=False), "http:reports": delivery_traits(reports=True)},
    build=_build,
)
