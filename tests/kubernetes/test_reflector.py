"""The reflector: it waits between tries, and lists again whenever the server cannot continue a watch."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kron.launchers.kubernetes.api import JOBS, ApiClient, Document, WatchEvent
from kron.launchers.kubernetes.reflector import Reflector
from kron.testing import SimulatedClock
from tests.kubernetes.api_server import ApiServer, Fault
from tests.kubernetes.cluster import POD, START
from tests.waiting import PATIENCE_S, until


class Reflection:
    """A reflector of Jobs in simulated time, and the names it knows."""

    def __init__(self, server: ApiServer, api: ApiClient) -> None:
        self.server = server
        self.clock = SimulatedClock(START)
        self.names: set[str] = set()
        self.lists = 0
        self.reflector = Reflector(api, self.clock, JOBS, listed=self._listed, changed=self._changed)

    def _listed(self, documents: list[Document]) -> None:
        self.lists += 1
        self.names = {each["metadata"]["name"] for each in documents}

    def _changed(self, event: WatchEvent) -> None:
        self.names.add(event.object["metadata"]["name"])

    def add(self, name: str) -> None:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
        self.server.add("jobs", {**job, "spec": {"template": {"spec": POD}}})

    def watches(self) -> int:
        return sum(each.verb == "watch" for each in self.server.requests)

    async def eventually(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, while simulated time passes."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.clock.advance_to(self.clock.now() + timedelta(seconds=1))
                await asyncio.sleep(0.005)


@asynccontextmanager
async def reflecting(server: ApiServer, api: ApiClient) -> AsyncIterator[Reflection]:
    reflection = Reflection(server, api)
    reflection.reflector.start()
    try:
        yield reflection
    finally:
        await reflection.reflector.stop()


async def test_watches_that_the_server_ends_at_once_are_opened_again_later_each_time(
    server: ApiServer, api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(*_: Any) -> None:
        """End a watch without an event, as a server does that is about to stop, or a proxy."""

    monkeypatch.setattr(server, "_watch", ended)
    async with reflecting(server, api) as reflection:
        await until(lambda: reflection.watches() > 0)
        await asyncio.sleep(0.2)
        assert reflection.watches() == 1
        await reflection.clock.advance_to(START + timedelta(minutes=1))
        await asyncio.sleep(0.2)
        assert reflection.watches() < 30


async def test_a_version_that_the_server_does_not_know_is_given_up_for_a_list(
    server: ApiServer, api: ApiClient
) -> None:
    async with reflecting(server, api) as reflection:
        await until(lambda: reflection.watches() == 1)
        too_large = Fault(lambda each: each.verb == "watch", status=504)
        server.faults = [too_large]
        server.cut_watches()
        reflection.add("a")
        await reflection.eventually(lambda: reflection.names == {"a"})
        assert reflection.lists == 2


async def test_a_server_that_is_busy_is_not_asked_for_a_list(server: ApiServer, api: ApiClient) -> None:
    async with reflecting(server, api) as reflection:
        await until(lambda: reflection.watches() == 1)
        server.faults = [Fault(lambda each: each.verb == "watch", status=429, times=3)]
        server.cut_watches()
        reflection.add("a")
        await reflection.eventually(lambda: reflection.names == {"a"})
        assert reflection.lists == 1
