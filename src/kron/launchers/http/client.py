"""Sending requests: to addresses that were looked at, over connections that are kept, and to nobody else."""

import asyncio
import json
import socket
import ssl
from contextlib import suppress

from kron.launchers.http.connection import (
    ConnectError,
    Connection,
    ConnectTimeoutError,
    LostError,
    Origin,
    connect,
)
from kron.launchers.http.egress import EgressPolicy, is_address
from kron.launchers.http.pool import Pool
from kron.launchers.http.request import (
    DeliveryResult,
    Target,
    answer_of,
    document_of,
    headers_of,
    hidden,
    target_of,
    written,
)
from kron.launchers.http.response import Response
from kron.launchers.http.signature import signed
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import HttpSettings
from kron.ports import Clock, Launch

# For how long an answer's text is read.
ANSWER_S = 5.0
# How many of a host's addresses are tried in one request.
MAX_ADDRESSES = 4


class RefusedError(Exception):
    """A request may not be sent where it is addressed to."""


class Sender:
    """Sends single requests over connections that are kept.

    Neither proxies nor passwords come from the environment: a job's request is what its settings say.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        gate: EgressPolicy | None = None,
        secret: bytes | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._clock = clock
        self._gate = gate
        self._secret = secret
        self._tls = tls
        self._pool = Pool()

    async def send(self, launch: Launch, settings: HttpSettings) -> DeliveryResult:
        """Send one request and return what came of it; what goes wrong on the way may pass."""
        target = target_of(settings)
        total_s = settings.timeout.total_seconds()
        try:
            request = self._request(launch, settings, target)
            async with asyncio.timeout(total_s):
                connection, response = await self._post(request, settings, target)
        except ConnectTimeoutError:
            error = f"{target.shown} did not answer within {settings.connect_timeout.total_seconds():g} s"
        except TimeoutError:
            error = f"{target.shown} did not answer within {total_s:g} s"
        except RefusedError as cause:
            return DeliveryResult(hidden(f"{target.shown} may not be asked: {cause}", target))
        except OSError as cause:
            error = f"{target.shown} cannot be reached: {type(cause).__name__}: {cause}".removesuffix(": ")
        except ValueError as cause:
            return DeliveryResult(hidden(f"{target.shown} cannot be asked: {cause}", target))
        else:
            await self._finish(connection, response, min(total_s, ANSWER_S))
            return answer_of(
                target, response.status, response.headers, bytes(response.body), self._clock.now()
            )
        return DeliveryResult(hidden(error, target), again=True)

    def _request(self, launch: Launch, settings: HttpSettings, target: Target) -> bytes:
        headers = headers_of(launch)
        given = launch.payload
        text = json.dumps(document_of(launch, settings)) if given is None else given.document
        body = text.encode()
        if self._secret is not None:
            headers |= signed(self._secret, body, now=int(self._clock.now().timestamp()))
            headers["Kron-Run-Token"] = run_token_of(self._secret, launch.run.key)
        return written(target, headers, body)

    async def _post(
        self, request: bytes, settings: HttpSettings, target: Target
    ) -> tuple[Connection, Response]:
        """Send a request over a connection that was kept, or over a new one."""
        origin = self._origin_of(settings.url, target)
        connection = self._pool.take(origin)
        if connection is not None:
            try:
                return connection, await connection.ask(request)
            except LostError as error:
                # It may have been closed before the request came there; if not, the key makes it safe.
                if not error.untouched:
                    raise
        connection = await self._connected(settings, origin)
        return connection, await connection.ask(request)

    async def _finish(self, connection: Connection, response: Response, seconds: float) -> None:
        """Read what comes of an answer's text in time; its status counts even if nothing does."""
        if not response.is_over:
            with suppress(OSError):
                async with asyncio.timeout(seconds):
                    await connection.rest_of(response)
        if response.is_over and response.is_kept and connection.is_open:
            self._pool.put(connection)
        else:
            connection.close()

    def _origin_of(self, url: str, target: Target) -> Origin:
        """Return whom a request is for, or refuse it as far as its address says so itself."""
        if self._gate is None:
            return target.origin
        fault = self._gate.fault_of(url)
        if fault is not None:
            raise RefusedError(f"{target.origin.host} {fault}")
        return target.origin._replace(trusted=url in self._gate.urls)

    async def _connected(self, settings: HttpSettings, origin: Origin) -> Connection:
        """Connect to an address that was looked at.

        A name that means something else by now, or to somebody else, changes nothing.
        """
        tls = self._context() if origin.scheme == "https" else None
        last = ConnectError(f"{origin.host} has no address")
        for address in await self._addresses(settings.url, origin.host):
            try:
                return await connect(
                    address, origin, tls=tls, seconds=settings.connect_timeout.total_seconds()
                )
            except ConnectTimeoutError:
                raise
            except ConnectError as error:
                last = error
        raise last

    async def _addresses(self, url: str, host: str) -> list[str]:
        """Return where a request may go; without a gate that is anywhere, and nothing is looked up."""
        if self._gate is None:
            return [host]
        addresses = [host] if is_address(host) else await _looked_up(host)
        fault = self._gate.fault_of_found(url, addresses)
        if fault is not None:
            raise RefusedError(f"{host} {fault}")
        return addresses[:MAX_ADDRESSES]

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    async def close(self) -> None:
        """Let go of the connections."""
        self._pool.close()


async def _looked_up(host: str) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
