"""The keyring: verification keys from a secret, a file or a URL, reloaded when they may have changed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

from kron.fronts.service.auth.key import InvalidKeysError, Key, keys_of
from kron.launchers.http.client import HttpClient, HttpTarget, request_of, target_of
from kron.ports import Clock

_log = logging.getLogger("kron.service")
# In seconds: how long keys are cached, how soon an unknown key id reloads them, and how long they are used
# while their source cannot be read.
FRESH_S, SOON_S, STALE_S = 300.0, 10.0, 3_600.0
MAX_BYTES = 262_144
TIMEOUT_S = 5.0
Read = Callable[[], Awaitable[bytes]]


class Keyring:
    """Finds the keys that can verify a token."""

    def __init__(
        self,
        clock: Clock,
        *,
        fixed: tuple[Key, ...] = (),
        source: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._clock = clock
        self._fixed = fixed
        self._source = source
        self._read: Read | None = None if source is None else _reader_of(source, timeout_s)
        self._keys: tuple[Key, ...] = ()
        self._good_at = self._tried_at = float("-inf")
        self._reading = asyncio.Lock()

    async def find(self, name: str | None, algorithm: str) -> list[Key]:
        """Return the keys for a token with this key id and algorithm."""
        read = self._read
        if read is not None and self._is_due(FRESH_S):
            await self._refresh(read, FRESH_S)
        keys = self._matching(name, algorithm)
        if not keys and read is not None:
            # The key may be newer than the cached ones, or among those that another request reads now.
            await self._refresh(read, SOON_S)
            keys = self._matching(name, algorithm)
        return keys

    async def load(self) -> None:
        """Load the keys, or raise InvalidKeysError."""
        if self._read is not None:
            await self._take(await self._read())

    async def start(self) -> None:
        """Load the keys at startup; a file must exist, a URL may become available later."""
        try:
            await self.load()
        except InvalidKeysError as error:
            if not _is_address(str(self._source)):
                raise
            _log.warning("token keys cannot be loaded yet: %s", error)

    def _matching(self, name: str | None, algorithm: str) -> list[Key]:
        known = (*self._fixed, *self._keys)
        return [
            key
            for key in known
            if key.algorithm == algorithm and (name is None or key.name is None or key.name == name)
        ]

    def _is_due(self, after_s: float) -> bool:
        return self._clock.monotonic() - self._tried_at >= after_s

    async def _refresh(self, read: Read, after_s: float) -> None:
        """Reload the keys if they are due; if that fails, the cached ones are used until they are stale."""
        async with self._reading:
            if not self._is_due(after_s):
                # Another request reloaded them a short time ago, perhaps while this one waited for the lock.
                return
            self._tried_at = self._clock.monotonic()
            try:
                await self._take(await read())
            except InvalidKeysError as error:
                _log.warning("token keys cannot be reloaded: %s", error)
                if self._clock.monotonic() - self._good_at > STALE_S:
                    self._keys = ()

    async def _take(self, text: bytes) -> None:
        self._keys = keys_of(text, source=str(self._source))
        self._good_at = self._tried_at = self._clock.monotonic()


def _is_address(source: str) -> bool:
    return "://" in source


def _reader_of(source: str, timeout_s: float) -> Read:
    if not _is_address(source):
        return lambda: _read_file(source)
    try:
        target = target_of(source)
    except ValueError as cause:
        raise InvalidKeysError(source=source, reason=f"it is not an address: {cause}") from cause
    origin = target.origin
    if origin.scheme != "https" and origin.host not in ("127.0.0.1", "::1", "localhost"):
        raise InvalidKeysError(source=source, reason="its URL must start with https://")
    return lambda: _fetch(target, timeout_s)


async def _read_file(path: str) -> bytes:
    try:
        text = await asyncio.to_thread(Path(path).read_bytes)
    except OSError as cause:
        raise InvalidKeysError(source=path, reason=cause.strerror or "it cannot be read") from cause
    return text


async def _fetch(target: HttpTarget, timeout_s: float) -> bytes:
    """Return the body of a 200 response, within a timeout for the whole exchange; redirects are refused."""
    url, client = target.url, HttpClient()
    try:
        async with asyncio.timeout(timeout_s):
            request = request_of("GET", target, {"Accept": "application/json"})
            response = await client.fetch(request, target, idle_s=timeout_s, max_body=MAX_BYTES)
    except TimeoutError as cause:
        raise InvalidKeysError(source=url, reason=f"it took longer than {timeout_s:g} seconds") from cause
    except (OSError, ValueError) as cause:
        raise InvalidKeysError(source=url, reason=str(cause) or type(cause).__name__) from cause
    if response.status != HTTPStatus.OK:
        raise InvalidKeysError(source=url, reason=f"it answered {response.status}")
    if response.is_cut:
        raise InvalidKeysError(source=url, reason=f"it is larger than {MAX_BYTES} bytes")
    return bytes(response.body)
