"""Reflects a resource: one list, then a watch that continues after cuts, and another list after an expiry."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from math import inf

from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.kubernetes.api import (
    ApiClient,
    ApiError,
    ApiUnavailableError,
    Document,
    Resource,
    ResourceList,
    WatchEvent,
    WatchExpiredError,
)
from kron.ports import Clock

_log = logging.getLogger("kron.kubernetes")
# Delays between tries while the API server does not answer; they end only with the reflector.
BACKOFF = Backoff(
    max_attempts=1_000_000, first_delay=timedelta(milliseconds=100), max_delay=timedelta(seconds=5)
)
# A watch that ends sooner, in seconds, and had no event, has failed.
SHORT_S = 1.0


class Reflector:
    """Calls `listed` with all objects, and `changed` with each change after that.

    `listed` is called again whenever changes may have been missed.
    """

    def __init__(
        self,
        api: ApiClient,
        clock: Clock,
        resource: Resource,
        *,
        listed: Callable[[list[Document]], None],
        changed: Callable[[WatchEvent], None],
        namespace: str | None = None,
        labels: str | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._resource = resource
        self._namespace = namespace
        self._labels = labels
        self._listed = listed
        self._changed = changed
        self._task: asyncio.Task[None] | None = None

    async def list(self) -> ResourceList:
        """Return all objects now."""
        return await self._api.list(self._resource, self._namespace, labels=self._labels)

    def start(self, version: str | None = None) -> None:
        """Watch from a version on; without one the objects are listed first."""
        if self._task is None:
            name = f"kron watch {self._resource.plural}"
            self._task = asyncio.create_task(self._run(version), name=name)

    async def stop(self) -> None:
        """Stop watching."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def kill(self) -> None:
        """Stop at once, as a crash would."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, version: str | None) -> None:
        failures = 0
        while True:
            failures += 1
            opened_at = inf
            try:
                if version is None:
                    listed = await self.list()
                    version = listed.version
                    self._listed(listed.items)
                opened_at = self._clock.monotonic()
                async for event in self._api.watch(
                    self._resource, self._namespace, version, labels=self._labels
                ):
                    failures = 0
                    version = str(event.object["metadata"]["resourceVersion"])
                    if event.type != "BOOKMARK":
                        self._changed(event)
            except WatchExpiredError:
                version = None
            except (ApiError, ApiUnavailableError) as error:
                _log.info("watch of %s: %s", self._resource.plural, error)
                if isinstance(error, ApiError) and error.status != HTTPStatus.TOO_MANY_REQUESTS:
                    version = None  # it may not know the version, as after its store was restored
            if self._clock.monotonic() - opened_at >= SHORT_S:
                failures = 0
            if failures:
                delay = BACKOFF.delay_after(self._resource.plural, failures)
                await sleep_for(self._clock, delay or 0)
