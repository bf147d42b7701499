# ruff: noqa: D102 - the name of a test is its sentence
"""Who looks after the jobs."""

import asyncio
from itertools import pairwise

from kron.core.errors import OwnedError
from kron.core.plan.query import PruneBounds
from kron.core.plan.record import key_of
from kron.core.shard import SHARDS
from kron.ports import Ownership, Store
from kron.testing.contract.sample import (
    CLEAN,
    ELSEWHERE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_run,
    an_end,
    refused,
    stored,
    written,
)


class OwnershipContract:
    """A namespace has one owner, and its own jobs."""

    async def test_namespaces_know_nothing_of_each_other(self, store: Store) -> None:
        here, there = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "b")
        await stored(store, a_job(failures=1))
        await stored(store, a_job(failures=2), namespace=ELSEWHERE)
        for ownership in (here, there):
            await written(
                store,
                ownership,
                an_end(a_run()),
                a_run(nominal_time=NOON + 1, attempt=2),
                attempts=[a_run(nominal_time=NOON + 1, error=ownership.namespace)],
            )
        key = key_of("backup", NOON + 1)
        assert [found.error for found in await store.attempts(ELSEWHERE, key)] == [ELSEWHERE]
        assert (await store.prune(SPACE, PruneBounds(before=NOW + 2_000), limit=10)).runs == 1
        await store.forget(SPACE, ["backup"])
        assert await store.cases(SPACE) == []
        assert (await store.load(here, until=NOW, limit=10)).cases == []
        (case,) = (await store.load(there, until=NOW, limit=10)).cases
        assert (case.job.failures, len(case.runs)) == (2, 1)
        assert len(await store.runs(ELSEWHERE, "backup")) == 2
        assert len(await store.attempts(ELSEWHERE, key)) == 1
        assert await store.attempts(SPACE, key) == []

    async def test_a_namespace_has_one_owner(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        assert (ownership.namespace, ownership.owner) == (SPACE, "a")
        assert set(ownership.shards) == set(range(SHARDS))
        await refused(store.acquire(SPACE, "b"))
        assert set((await store.acquire(ELSEWHERE, "b")).shards) == set(range(SHARDS))

    async def test_what_is_released_can_be_taken_at_once_with_a_higher_token(self, store: Store) -> None:
        tokens = []
        for owner in "abab":
            ownership = await store.acquire(SPACE, owner)
            tokens.append((min(ownership.shards.values()), ownership.token))
            await store.release(ownership)
        for (_, earlier), (later, _) in pairwise(tokens):
            assert later > earlier

    async def test_of_racing_owners_one_wins(self, store: Store) -> None:
        calls = [store.acquire(SPACE, f"owner {n}") for n in range(8)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, Ownership) for answer in answers) == 1
        assert sum(isinstance(answer, OwnedError) for answer in answers) == 7

    async def test_what_is_renewed_is_still_owned(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        renewed = await store.renew(ownership)
        assert renewed == ownership
        assert await store.settle(renewed, [a_change(job)], now=NOW) == CLEAN

    async def test_a_release_that_comes_too_late_lets_go_of_nothing(self, store: Store) -> None:
        earlier = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        await store.release(earlier)
        later = await store.acquire(SPACE, "b")
        await store.release(earlier)
        assert await store.settle(later, [a_change(job)], now=NOW) == CLEAN
        await refused(store.acquire(SPACE, "c"))

    async def test_a_store_may_be_closed_twice(self, store: Store) -> None:
        await store.acquire(SPACE, "a")
        await store.close()
        await store.close()
