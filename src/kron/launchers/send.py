"""Sending requests with httpx. Only the http launcher imports this, and only when it is used."""

import asyncio
import json
import socket
from contextlib import suppress

import httpx

from kron.launchers.gate import Gate, host_of
from kron.launchers.kind import HttpSettings
from kron.launchers.request import Answer, Target, answer_of, document_of, headers_of, hidden, target_of
from kron.launchers.run_token import run_token_of
from kron.launchers.signature import signed
from kron.ports import Clock, Launch

# What is read of an answer's text: so many bytes, and for so long.
MAX_ANSWER, ANSWER_S = 65_536, 5.0
# How many of a host's addresses are tried in one request.
MAX_ADDRESSES = 4
_QUERY, _ADDRESSES = "kron_query", "kron_addresses"


class RefusedError(Exception):
    """A request may not be sent where it is addressed to."""


class _Transport(httpx.AsyncHTTPTransport):
    """Adds the query where nobody logs it: the client writes every address it sends to into its log.

    Connects to the addresses that were looked at before, so that a name that means something else by now,
    or to somebody else, changes nothing. The server still has to prove that it is the host of the URL.
    """

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url.copy_with(query=request.extensions[_QUERY] or None)
        addresses: list[str] = request.extensions[_ADDRESSES]
        extensions = {**request.extensions, "sni_hostname": url.host} if addresses else request.extensions
        for number, address in enumerate(addresses or [url.host], 1):
            whole = httpx.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await super().handle_async_request(whole)
            except httpx.ConnectError:
                if number >= len(addresses):
                    raise
        raise AssertionError("the last address answers or raises")


class Sender:
    """Sends single requests over connections that are kept."""

    def __init__(self, clock: Clock, *, gate: Gate | None = None, secret: bytes | None = None) -> None:
        self._clock = clock
        self._gate = gate
        self._secret = secret
        self._client: httpx.AsyncClient | None = None

    async def send(self, launch: Launch, settings: HttpSettings, request_id: str | None = None) -> Answer:
        """Send one request and return what came of it; what goes wrong on the way may pass."""
        headers = headers_of(launch, settings, request_id)
        target = target_of(settings)
        total_s = settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(total_s):
                response = await self._post(launch, settings, target, headers)
        except (TimeoutError, httpx.TimeoutException) as cause:
            connecting = isinstance(cause, httpx.ConnectTimeout)
            within = settings.connect_timeout.total_seconds() if connecting else total_s
            error = f"{target.shown} did not answer within {within:g} s"
        except RefusedError as cause:
            return Answer(hidden(f"{target.shown} may not be asked: {cause}", target))
        except (httpx.HTTPError, OSError) as cause:
            error = f"{target.shown} cannot be reached: {type(cause).__name__}: {cause}".removesuffix(": ")
        except (httpx.InvalidURL, ValueError) as cause:
            return Answer(hidden(f"{target.shown} cannot be asked: {cause}", target))
        else:
            body = await _beginning_of(response, min(total_s, ANSWER_S))
            return answer_of(target, response.status_code, response.headers, body, self._clock.now())
        return Answer(hidden(error, target), again=True)

    async def _post(
        self, launch: Launch, settings: HttpSettings, target: Target, headers: dict[str, str]
    ) -> httpx.Response:
        client = self._opened()
        given = launch.given
        text = json.dumps(document_of(launch, settings)) if given is None else given.document
        body = text.encode()
        if self._secret is not None:
            headers |= signed(self._secret, body, now=int(self._clock.now().timestamp()))
            headers["Kron-Run-Token"] = run_token_of(self._secret, launch.run.key)
        request = client.build_request(
            "POST",
            target.shown,
            content=body,
            headers=headers,
            timeout=httpx.Timeout(
                settings.timeout.total_seconds(), connect=settings.connect_timeout.total_seconds(), pool=None
            ),
            extensions={_QUERY: target.query.encode(), _ADDRESSES: await self._addresses(settings.url)},
        )
        login = None if target.login is None else httpx.BasicAuth(*target.login)
        return await client.send(request, auth=login, follow_redirects=False, stream=True)

    async def _addresses(self, url: str) -> list[str]:
        """Return where a request may go; without a gate that is anywhere, and nothing is looked up."""
        if self._gate is None:
            return []
        fault, host = self._gate.fault_of(url), host_of(url)
        if fault is None:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            fault = self._gate.fault_of_found(url, addresses)
            if fault is None:
                return addresses[:MAX_ADDRESSES]
        raise RefusedError(f"{host} {fault}")

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            # Neither proxies nor passwords from the environment: a job's request is what its settings say.
            self._client = httpx.AsyncClient(transport=_Transport(), trust_env=False)
        return self._client

    async def close(self) -> None:
        """Let go of the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


async def _beginning_of(response: httpx.Response, seconds: float) -> bytes:
    """Return what comes of an answer's text in time; its status counts even if nothing does."""
    body = b""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(seconds):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_ANSWER:
                    break
    with suppress(httpx.HTTPError):
        await response.aclose()
    return body[:MAX_ANSWER]
