"""Webhooks and heartbeats: requests to the URLs of channels and schedules, within the egress policy."""

import asyncio
import json
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

from kron.app.notify.channel import SLACK_FORMAT, WebhookChannel
from kron.app.notify.message import Composed
from kron.core.job.notify import shown_target
from kron.core.plan.record import NoticeEvent, NoticeRecord
from kron.launchers.delivery import DeliveryResult
from kron.launchers.http.client import ConnectTimeoutError, EgressError, HttpClient, request_of, target_of
from kron.launchers.http.egress import EgressPolicy
from kron.launchers.http.launcher import RequestTemplate, result_of, signed, signing_key_of
from kron.ports import Clock

# How long a connection and a whole request may take, in seconds.
CONNECT_S, REQUEST_S = 5.0, 10.0
# The header by which a receiver recognizes a message that is sent again.
ID_HEADER = "Kron-Notification-Id"
# The suffixes of a heartbeat's path.
SUFFIXES = {NoticeEvent.PING_START: "/start", NoticeEvent.PING_SUCCESS: "", NoticeEvent.PING_FAIL: "/fail"}
# Slack reads these characters as markup.
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class WebhookSender:
    """Sends requests over connections of its own, so that no start waits for one."""

    def __init__(
        self, clock: Clock, *, egress: EgressPolicy | None = None, secret: bytes | None = None
    ) -> None:
        self._clock = clock
        self._secret = secret
        self._client = HttpClient(egress=egress)

    async def post(
        self, channel: WebhookChannel, message: Composed, owner: str, *, user_id: str | None
    ) -> DeliveryResult:
        """Post a message of an owner; with a secret the request is signed as a start is, with a user's key.

        Messages to channels of the operator are of no user: the secret itself signs them.
        """
        body = json.dumps(body_of(channel, message)).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.id, ID_HEADER: message.id}
        if self._secret is not None:
            key = signing_key_of(self._secret, user_id)
            headers |= signed(key, body, now=int(self._clock.now().timestamp()))
        return await self._request("POST", channel.address, headers, body, owner)

    async def ping(self, notice: NoticeRecord) -> DeliveryResult:
        """Request the URL of a heartbeat."""
        url = ping_url(notice.target, notice.event)
        owner = notice.identity.partition("/")[0]
        return await self._request("GET", url, {ID_HEADER: notice.id}, None, owner)

    async def _request(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None, owner: str
    ) -> DeliveryResult:
        shown = shown_target(url)
        try:
            target = target_of(url)
            data = request_of(method, target, headers, body)
            async with asyncio.timeout(REQUEST_S):
                connection, response = await self._client.send(
                    data, target, connect_s=CONNECT_S, tenant=owner
                )
                with suppress(OSError):
                    await connection.read_rest(response)
        except ConnectTimeoutError:
            error = f"{shown} did not answer within {CONNECT_S:g} s"
        except TimeoutError:
            error = f"{shown} did not answer within {REQUEST_S:g} s"
        except EgressError as cause:
            return DeliveryResult(f"{shown} is not allowed: {cause}")
        except OSError as cause:
            error = f"{shown} cannot be reached: {type(cause).__name__}: {cause}".removesuffix(": ")
        except ValueError:
            return DeliveryResult(f"{shown} is not a URL that can be requested")
        else:
            self._client.release(connection, response)
            path = url.partition("://")[2].partition("/")[2]
            template = RequestTemplate(target, "", {}, shown, (path, *path.split("/")))
            return result_of(template, response, self._clock.now())
        return DeliveryResult(error, retry=True)

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()


def body_of(channel: WebhookChannel, message: Composed) -> dict[str, object]:
    """Return the body of a webhook's request by its template."""
    if channel.format == SLACK_FORMAT:
        return {"text": message.text.translate(_SLACK_ESCAPES)}
    return message.document


def ping_url(url: str, event: NoticeEvent) -> str:
    """Return the URL of a ping: what it signals is appended to the path, before a query."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + SUFFIXES[event]))
