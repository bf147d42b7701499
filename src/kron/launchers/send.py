"""Sending requests with httpx. Only the http launcher imports this, and only when it is used."""

import asyncio
import json
from contextlib import suppress

import httpx

from kron.launchers.kind import HttpSettings
from kron.launchers.request import Answer, Target, answer_of, document_of, headers_of, hidden, target_of
from kron.ports import Clock, Launch

# What is read of an answer's text: so many bytes, and for so long.
MAX_ANSWER, ANSWER_S = 65_536, 5.0
_QUERY = "kron_query"


class _Transport(httpx.AsyncHTTPTransport):
    """Adds the query where nobody logs it: the client writes every address it sends to into its log."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        query = request.extensions.get(_QUERY)
        if not query:
            return await super().handle_async_request(request)
        whole = httpx.Request(
            request.method,
            request.url.copy_with(query=query),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        return await super().handle_async_request(whole)


class Sender:
    """Sends single requests over connections that are kept."""

    def __init__(self, clock: Clock, *, proxy: str | None = None) -> None:
        self._clock = clock
        self._proxy = proxy
        self._client: httpx.AsyncClient | None = None

    async def send(self, launch: Launch, settings: HttpSettings) -> Answer:
        """Send one request and return what came of it; what goes wrong on the way may pass."""
        target = target_of(settings)
        total_s = settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(total_s):
                response = await self._post(launch, settings, target)
        except (TimeoutError, httpx.TimeoutException) as cause:
            connecting = isinstance(cause, httpx.ConnectTimeout)
            within = settings.connect_timeout.total_seconds() if connecting else total_s
            error = f"{target.shown} did not answer within {within:g} s"
        except (httpx.HTTPError, OSError) as cause:
            error = f"{target.shown} cannot be reached: {type(cause).__name__}: {cause}".removesuffix(": ")
        except (httpx.InvalidURL, ValueError) as cause:
            return Answer(hidden(f"{target.shown} cannot be asked: {cause}", target))
        else:
            body = await _beginning_of(response, min(total_s, ANSWER_S))
            return answer_of(target, response.status_code, response.headers, body, self._clock.now())
        return Answer(hidden(error, target), again=True)

    async def _post(self, launch: Launch, settings: HttpSettings, target: Target) -> httpx.Response:
        client = self._opened()
        request = client.build_request(
            "POST",
            target.shown,
            content=json.dumps(document_of(launch, settings)).encode(),
            headers=headers_of(launch, settings),
            timeout=httpx.Timeout(
                settings.timeout.total_seconds(), connect=settings.connect_timeout.total_seconds(), pool=None
            ),
            extensions={_QUERY: target.query.encode()},
        )
        login = None if target.login is None else httpx.BasicAuth(*target.login)
        return await client.send(request, auth=login, follow_redirects=False, stream=True)

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            # Neither proxies nor passwords from the environment: a job's request is what its settings say.
            self._client = httpx.AsyncClient(transport=_Transport(proxy=self._proxy), trust_env=False)
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
