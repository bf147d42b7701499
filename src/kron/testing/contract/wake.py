# ruff: noqa: D102 - the name of a test is its sentence
"""The loop's reads: due jobs with everything needed to plan them."""

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
    """Due jobs are loaded oldest first, with their open runs and definitions."""

    async def test_only_due_jobs_are_loaded_oldest_first(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        due = [a_job(name, plan_at=NOW - at) for name, at in (("c", 1), ("a", 3), ("d", 0), ("b", 2))]
        later = [a_job("later", plan_at=NOW + 1), a_job("never", plan_at=None)]
        await stored(store, *due, *later)
        assert await names_due(store, ownership) == ["a", "b", "c", "d"]

    async def test_a_limit_keeps_the_oldest(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(f"job {n}", plan_at=NOW - n) for n in range(20)))
        assert await names_due(store, ownership, limit=3) == ["job 19", "job 18", "job 17"]

    async def test_a_due_run_loads_its_job(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(name, plan_at=None) for name in ("due", "later", "idle")))
        due, later = a_run("due", due_at=NOW), a_run("later", due_at=NOW + 1)
        await written(store, ownership, due, later, a_run("idle"))
        loaded = await store.load(ownership, until=NOW, limit=10)
        assert [(state.job.identity, list(state.runs)) for state in loaded.cases] == [("due", [due])]
        assert loaded.next_at == NOW + 1

    async def test_a_job_with_many_due_runs_does_not_hide_the_others(self, store: Store) -> None:
        """A result below the limit without a due `next_at` is complete."""
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("much", plan_at=None), a_job("little", plan_at=None))
        many = [a_run("much", NOON + n, due_at=NOW - 10) for n in range(6)]
        await written(store, ownership, *many, a_run("little", due_at=NOW))
        seen: set[str] = set()
        for _ in range(3):
            loaded = await store.load(ownership, until=NOW, limit=3)
            for state in loaded.cases:
                seen.add(state.job.identity)
                change = a_change(state.job)
                change.updates += [an_end(run) for run in state.runs]
                assert await store.settle(ownership, [change], now=NOW) == CLEAN
            if len(loaded.cases) < 3 and (loaded.next_at is None or loaded.next_at > NOW):
                break
        assert seen == {"much", "little"}

    async def test_named_jobs_are_loaded_too_once(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("due"), a_job("named", plan_at=None), a_job("other", plan_at=None))
        loaded = await store.load(ownership, until=NOW, limit=10, named=["named", "due", "unknown"])
        assert sorted(state.job.identity for state in loaded.cases) == ["due", "named"]
        loaded = await store.load(ownership, until=-1, limit=10, named=["named"])
        assert [state.job.identity for state in loaded.cases] == ["named"]

    async def test_excluded_jobs_are_left_out_and_do_not_count_for_the_limit(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(f"job {n}", plan_at=NOW - 9 + n) for n in range(6)))
        await stored(store, a_job("by run", plan_at=None), a_job("excluded", plan_at=None))
        await written(store, ownership, a_run("by run", due_at=NOW), a_run("excluded", due_at=NOW))
        states = (await store.load(ownership, until=NOW, limit=10)).cases
        excluded = ("job 0", "job 1", "job 3", "excluded")
        without = [state.job for state in states if state.job.identity in excluded]
        loaded = await store.load(ownership, until=NOW, limit=10, without=without)
        assert sorted(state.job.identity for state in loaded.cases) == ["by run", "job 2", "job 4", "job 5"]
        assert loaded.next_at is None
        loaded = await store.load(ownership, until=NOW, limit=2, without=without)
        assert {"job 2", "job 4"} <= {state.job.identity for state in loaded.cases}

    async def test_next_at_is_the_earliest_due_time_of_all_other_jobs(self, store: Store) -> None:
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
        (state,) = (await store.load(ownership, until=NOW, limit=10)).cases
        assert {run.key for run in state.runs} == {runs[0].key, runs[1].key, runs[3].key}

    async def test_open_runs_come_with_the_earlier_definitions_they_follow(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("edited"), a_job("not edited"))
        await written(store, ownership, a_run("edited"), a_run("not edited"))
        (state,) = await store.cases(SPACE, ["edited"])
        edit = a_change(state.job, definition="{}", epoch=2, edited_at=NOW)
        assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
        states = {
            state.job.identity: state for state in (await store.load(ownership, until=NOW, limit=9)).cases
        }
        assert dict(states["edited"].definitions) == {1: DEFINITION}
        assert dict(states["not edited"].definitions) == {}

    async def test_runs_that_may_be_executing_are_found(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        executing = [a_run(nominal_time=NOON + 1), a_run(nominal_time=NOON + 2, status=RunStatus.ENQUEUED)]
        others = [
            a_run(nominal_time=NOON + 3, status=RunStatus.PENDING, reason=Reason.PLANNED),
            a_run(nominal_time=NOON + 4, status=RunStatus.FAILED, reason=Reason.RETRY, due_at=NOW + 1),
            a_run(nominal_time=NOON + 5, status=RunStatus.ENQUEUED, is_open=0),
            an_end(a_run(nominal_time=NOON + 6)),
        ]
        await written(store, ownership, *executing, *others)
        assert sorted(await store.in_flight(ownership)) == sorted(executing)
