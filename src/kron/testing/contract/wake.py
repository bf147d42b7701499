# ruff: noqa: D102 - the name of a test is its sentence
"""A wake finds what there is to do."""

from kron.core.job.outcome import Reason
from kron.core.plan.record import RunStatus
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    DEFINITION,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_run,
    an_end,
    names_due,
    stored,
    written,
)


class WakeContract:
    """What is due is loaded, oldest first, with all that is needed to plan it."""

    async def test_only_jobs_with_something_to_do_are_loaded_oldest_first(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        due = [a_job(name, plan_at=NOW - at) for name, at in (("c", 1), ("a", 3), ("d", 0), ("b", 2))]
        later = [a_job("later", plan_at=NOW + 1), a_job("never", plan_at=None)]
        await stored(store, *due, *later)
        assert await names_due(store, ownership) == ["a", "b", "c", "d"]

    async def test_a_limit_takes_the_oldest(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(f"job {n}", plan_at=NOW - n) for n in range(20)))
        assert await names_due(store, ownership, limit=3) == ["job 19", "job 18", "job 17"]

    async def test_a_run_that_is_due_brings_its_job(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(name, plan_at=None) for name in ("due", "later", "idle")))
        due, later = a_run("due", due_at=NOW), a_run("later", due_at=NOW + 1)
        await written(store, ownership, due, later, a_run("idle"))
        loaded = await store.load(ownership, until=NOW, limit=10)
        assert [(case.job.identity, list(case.runs)) for case in loaded.cases] == [("due", [due])]
        assert loaded.next_at == NOW + 1

    async def test_one_job_with_much_to_do_does_not_hide_the_others(self, store: Store) -> None:
        """Whoever loads less than the limit, and is told of nothing due, has seen everything that is."""
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("much", plan_at=None), a_job("little", plan_at=None))
        many = [a_run("much", NOON + n, due_at=NOW - 10) for n in range(6)]
        await written(store, ownership, *many, a_run("little", due_at=NOW))
        seen: set[str] = set()
        for _ in range(3):
            loaded = await store.load(ownership, until=NOW, limit=3)
            for case in loaded.cases:
                seen.add(case.job.identity)
                change = a_change(case.job)
                change.updates += [an_end(run) for run in case.runs]
                assert await store.settle(ownership, [change], now=NOW) == CLEAN
            if len(loaded.cases) < 3 and (loaded.next_at is None or loaded.next_at > NOW):
                break
        assert seen == {"much", "little"}

    async def test_those_named_are_loaded_too_once(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("due"), a_job("named", plan_at=None), a_job("other", plan_at=None))
        loaded = await store.load(ownership, until=NOW, limit=10, named=["named", "due", "nobody"])
        assert sorted(case.job.identity for case in loaded.cases) == ["due", "named"]
        loaded = await store.load(ownership, until=-1, limit=10, named=["named"])
        assert [case.job.identity for case in loaded.cases] == ["named"]

    async def test_what_is_in_hand_is_left_out_and_takes_no_place(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(f"job {n}", plan_at=NOW - 9 + n) for n in range(6)))
        await stored(store, a_job("by run", plan_at=None), a_job("in hand", plan_at=None))
        await written(store, ownership, a_run("by run", due_at=NOW), a_run("in hand", due_at=NOW))
        cases = (await store.load(ownership, until=NOW, limit=10)).cases
        held = ("job 0", "job 1", "job 3", "in hand")
        without = [case.job for case in cases if case.job.identity in held]
        loaded = await store.load(ownership, until=NOW, limit=10, without=without)
        assert sorted(case.job.identity for case in loaded.cases) == ["by run", "job 2", "job 4", "job 5"]
        assert loaded.next_at is None
        loaded = await store.load(ownership, until=NOW, limit=2, without=without)
        assert {"job 2", "job 4"} <= {case.job.identity for case in loaded.cases}

    async def test_next_at_is_when_the_first_of_all_others_is_due(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("one", plan_at=NOW + 30), a_job("two", plan_at=NOW + 20), a_job("now"))
        assert (await store.load(ownership, until=NOW, limit=10)).next_at == NOW + 20
        assert (await store.load(ownership, until=NOW + 20, limit=10)).next_at == NOW + 30
        assert (await store.load(ownership, until=NOW + 30, limit=10)).next_at is None
        await written(store, ownership, a_run("one", due_at=NOW + 10))
        assert (await store.load(ownership, until=NOW, limit=10)).next_at == NOW + 10

    async def test_only_open_runs_are_loaded(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        runs = [a_run(nominal_time=NOON + n) for n in range(4)]
        await written(store, ownership, *runs[:2], an_end(runs[2]), runs[3])
        (case,) = (await store.load(ownership, until=NOW, limit=10)).cases
        assert {run.key for run in case.runs} == {runs[0].key, runs[1].key, runs[3].key}

    async def test_open_runs_come_with_the_earlier_definitions_they_follow(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("edited"), a_job("not edited"))
        await written(store, ownership, a_run("edited"), a_run("not edited"))
        (case,) = await store.cases(SPACE, ["edited"])
        edit = a_change(case.job, definition="{}", epoch=2, edited_at=NOW)
        assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
        cases = {case.job.identity: case for case in (await store.load(ownership, until=NOW, limit=9)).cases}
        assert dict(cases["edited"].definitions) == {1: DEFINITION}
        assert dict(cases["not edited"].definitions) == {}

    async def test_what_may_be_under_way_is_found(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        under_way = [a_run(nominal_time=NOON + 1), a_run(nominal_time=NOON + 2, status=RunStatus.ENQUEUED)]
        others = [
            a_run(nominal_time=NOON + 3, status=RunStatus.PENDING, reason=Reason.PLANNED),
            a_run(nominal_time=NOON + 4, status=RunStatus.FAILED, reason=Reason.RETRY, due_at=NOW + 1),
            a_run(nominal_time=NOON + 5, status=RunStatus.ENQUEUED, is_open=0),
            an_end(a_run(nominal_time=NOON + 6)),
        ]
        await written(store, ownership, *under_way, *others)
        assert sorted(await store.in_flight(ownership)) == sorted(under_way)
