"""The contract of the stores of DAG runs, held on every one of them."""

import asyncio
from typing import Any

import pytest

from kron.core.dag.contract import DagError
from kron.core.dag.definition import MAX_DOCUMENT, MAX_RESULT
from kron.core.dag.plan import TaskEnd, accepted, cancelled, ended
from kron.core.dag.record import AttemptOutcome, DagClaim, DagRunStatus, DagState
from kron.dag_ports import DagClaimRequest, DagLease, DagStore
from kron.stores.dag import MAX_NAMES, PART_OUTPUT, WHOLE_OUTPUT
from tests.app.dag.house import DAY, House, node

NOW = 1 << 50
GOOD = TaskEnd(AttemptOutcome.SUCCESS, result='{"a":1}', output="done\n")


@pytest.fixture
def house(dags: DagStore, tmp_path) -> House:  # type: ignore[no-untyped-def]
    return House(dags, tmp_path)


async def claim(store: DagStore, worker: str = "w", *, now: int = NOW, limit: int = 100) -> list[DagClaim]:
    return await store.claim(DagClaimRequest(worker, now, now + 1_000, limit))


async def state_of(store: DagStore, run_id: str) -> DagState:
    state = await store.state(run_id)
    assert state is not None
    return state


async def finish(store: DagStore, claimed: DagClaim, end: TaskEnd = GOOD, now: int = NOW) -> bool:
    change = ended(await state_of(store, claimed.run.run_id), claimed.task, end, now)
    return change is not None and await store.commit(change)


async def test_a_run_is_stored_with_its_snapshots_and_its_entry_tasks_are_queued(house: House) -> None:
    await house.put(node("a"), node("b", "a"))
    run_id = await house.start(input={"x": [1, "ü\0"]})
    state = await house.state(run_id)
    assert (state.run.run_key, state.run.status) == (f"etl:{DAY}", DagRunStatus.QUEUED)
    assert (state.run.input, state.run.trigger, state.run.version) == (
        '{"x":[1,"\\u00fc\\u0000"]}',
        "manual",
        1,
    )
    assert list(state.run.tasks.tasks) == ["a", "b"]
    assert await house.statuses(run_id) == {"a": "queued", "b": "waiting"}
    assert await house.store.state("absent") is None
    assert await house.store.run("absent") is None


async def test_the_same_key_is_the_same_run_and_queues_nothing(house: House) -> None:
    await house.put(node("a"))
    await house.orchestrator.put_version("etl", 2, {"nodes": [node("a"), node("z")]})
    start = house.orchestrator.start_run
    first = await start(dag_id="etl", version=1, logical_date="2026-06-01", trigger="scheduled")
    again = await start(dag_id="etl", logical_date="2026-06-01T02:00:00+02:00", input={"other": 1})
    assert (first.created, again.created, again.run_id, again.version) == (True, False, first.run_id, 1)
    rerun = await start(dag_id="etl", logical_date="2026-06-01", rerun_key="again")
    assert (rerun.created, rerun.run_key, rerun.version) == (True, f"etl:{DAY}:again", 2)
    assert len(await claim(house.store)) == 3


async def test_of_racing_starts_with_one_key_one_creates_the_run(house: House) -> None:
    await house.put(node("a"))
    started = await asyncio.gather(
        *(house.orchestrator.start_run(dag_id="etl", logical_date=DAY) for _ in range(12))
    )
    assert sorted(each.created for each in started) == [False] * 11 + [True]
    assert len({each.run_id for each in started}) == 1
    assert len(await claim(house.store)) == 1


async def test_racing_workers_claim_each_task_once_with_its_attempt_recorded(house: House) -> None:
    await house.put(*(node(f"t{number}") for number in range(20)), parallelism=100)
    run_id = await house.start()
    claims = await asyncio.gather(*(claim(house.store, f"w{number}", limit=4) for number in range(8)))
    names = [each.task.task_id for some in claims for each in some]
    assert sorted(names) == sorted(f"t{number}" for number in range(20))
    attempts = await house.store.attempts(run_id)
    assert {(each.task_id, each.attempt) for each in attempts} == {(name, 1) for name in names}
    owners = {each.task.task_id: each.task.worker for some in claims for each in some}
    assert {each.task_id: each.worker for each in attempts} == owners
    assert (await house.state(run_id)).run.status is DagRunStatus.RUNNING


@pytest.mark.parametrize(("fields", "most"), [({"parallelism": 2}, 4), ({"max_active_tasks": 3}, 3), ({}, 5)])
async def test_claims_stay_within_the_limits_of_run_dag_and_pool(
    house: House, fields: dict[str, Any], most: int
) -> None:
    await house.store.set_pool("db", 5)
    await house.put(*(node(f"t{number}", pool="db") for number in range(4)), **fields)
    await house.start()
    await house.start(day="2026-06-02")
    claims = await claim(house.store)
    assert len(claims) == most
    assert await claim(house.store, "other") == []
    assert await finish(house.store, claims[0])
    assert len(await claim(house.store, "other")) == 1


async def test_tasks_of_a_full_pool_do_not_hide_those_behind_them(house: House) -> None:
    await house.store.set_pool("db", 0)
    await house.put(*(node(f"t{number}", pool="db") for number in range(450)), parallelism=1000)
    await house.put(node("free"), dag_id="other")
    await house.start()
    await house.start("other")
    assert [each.task.task_id for each in await claim(house.store)] == ["free"]


async def test_an_end_is_recorded_once_and_queues_the_tasks_behind(house: House) -> None:
    await house.put(node("a"), node("b", "a"))
    run_id = await house.start()
    (first,) = await claim(house.store)
    assert await finish(house.store, first)
    assert not await finish(house.store, first)
    (attempt,) = await house.store.attempts(run_id, "a")
    assert (attempt.outcome, attempt.output, attempt.ended_at) == ("success", "done\n", NOW)
    (second,) = await claim(house.store)
    assert (second.task.task_id, dict(second.upstream)) == ("b", {"a": '{"a":1}'})
    assert await finish(house.store, second)
    assert (await house.state(run_id)).run.status is DagRunStatus.SUCCESS
    assert await house.store.next_due(NOW) is None


async def test_a_change_decided_on_an_older_revision_is_refused(house: House) -> None:
    await house.put(node("a"))
    run_id = await house.start()
    before = await state_of(house.store, run_id)
    (first,) = await claim(house.store)
    change = cancelled(before, NOW)
    assert change is not None
    assert not await house.store.commit(change)
    assert await house.statuses(run_id) == {"a": "running"}
    assert await finish(house.store, first)


async def test_an_expired_lease_is_taken_over_once_with_the_same_attempt(house: House) -> None:
    await house.put(node("a", retries=1))
    run_id = await house.start()
    (first,) = await claim(house.store, "dead")
    assert await claim(house.store, "heir", now=NOW + 999) == []
    assert await house.store.next_due(NOW) == NOW + 1_000
    (heir,) = await claim(house.store, "heir", now=NOW + 1_000)
    assert (heir.taken_over, heir.task.attempt, heir.task.worker) == (True, 1, "heir")
    assert await claim(house.store, "late", now=NOW + 1_000) == []
    # The dead worker was only slow: its end is stale.
    assert not await finish(house.store, first)
    assert await house.store.renew("dead", [DagLease(run_id, "a", 1)], NOW + 9_000) == {}
    assert await finish(house.store, heir, TaskEnd(AttemptOutcome.LOST, "died"))
    (attempt,) = await house.store.attempts(run_id)
    assert (attempt.worker, attempt.outcome) == ("heir", "lost")
    assert await house.statuses(run_id) == {"a": "queued"}


async def test_the_worker_that_takes_over_knows_whether_an_attempt_was_accepted(house: House) -> None:
    await house.put(node("a", retries=1, retry_delay=0))
    run_id = await house.start()
    (first,) = await claim(house.store, "dead")
    change = accepted(await state_of(house.store, run_id), first.task)
    assert change is not None
    assert await house.store.commit(change)
    (heir,) = await claim(house.store, "heir", now=NOW + 1_000)
    assert (heir.taken_over, heir.task.accepted) == (True, 1)
    assert accepted(await state_of(house.store, run_id), first.task) is None
    assert await finish(house.store, heir, TaskEnd(AttemptOutcome.LOST, "died"))
    (second,) = await claim(house.store, "heir")
    assert (second.task.attempt, second.task.accepted) == (2, 0)


async def test_a_renewed_lease_lasts_longer_and_tells_of_a_cancellation(house: House) -> None:
    await house.put(node("a"))
    run_id = await house.start()
    await claim(house.store, "w")
    lease = DagLease(run_id, "a", 1)
    assert await house.store.renew("w", [lease, DagLease(run_id, "a", 2)], NOW + 5_000) == {lease: False}
    assert await claim(house.store, "heir", now=NOW + 4_999) == []
    await house.orchestrator.cancel(run_id)
    assert await house.store.renew("w", [lease], NOW + 6_000) == {lease: True}


async def test_tasks_of_a_paused_dag_are_not_claimed(house: House) -> None:
    await house.put(node("a"))
    await house.put(node("a"), dag_id="other")
    await house.start()
    await house.start("other")
    await house.store.set_paused("etl", paused=True)
    assert [each.run.dag_id for each in await claim(house.store)] == ["other"]
    assert await house.store.paused() == {"etl"}
    await house.store.set_paused("etl", paused=False)
    assert await house.store.paused() == frozenset()
    assert [each.run.dag_id for each in await claim(house.store)] == ["etl"]


async def test_runs_are_listed_latest_first_in_pages_and_dags_with_their_counts(house: House) -> None:
    await house.put(node("a"))
    await house.put(node("a"), dag_id="other")
    ids = [await house.start(day=f"2026-06-0{day}") for day in range(1, 6)]
    await house.start("other")
    runs = await house.store.runs(dag_id="etl")
    assert {run.run_id for run in runs} == set(ids)
    first = await house.store.runs(dag_id="etl", limit=2)
    rest = await house.store.runs(dag_id="etl", before=first[-1])
    assert [*first, *rest] == runs
    await house.orchestrator.cancel(ids[0])
    assert [run.run_id for run in await house.store.runs(status="cancelled")] == [ids[0]]
    await house.store.set_paused("third", paused=True)
    by_name = {each.dag_id: each for each in await house.store.summaries()}
    assert list(by_name) == ["etl", "other", "third"]
    assert [await house.store.summary(name) for name in by_name] == list(by_name.values())
    assert (by_name["etl"].queued, by_name["etl"].cancelled, by_name["third"].paused) == (4, 1, 1)


async def test_an_unknown_pool_and_a_cancellation_of_an_unknown_run_are_refused(house: House) -> None:
    await house.put(node("a", pool="nowhere"))
    with pytest.raises(DagError) as caught:
        await house.start()
    assert caught.value.code == "DAG_VALIDATION_UNKNOWN_POOL"
    with pytest.raises(DagError) as caught:
        await house.orchestrator.cancel("absent")
    assert (caught.value.code, caught.value.category) == ("DAG_RUN_NOT_FOUND", "not_found")


async def test_open_runs_are_counted_by_user(house: House) -> None:
    await house.put(node("a"))
    run_id = await house.start()
    await house.start(day="2026-06-02")
    assert (await house.store.open_runs("kron"), await house.store.open_runs("ann")) == (2, 0)
    await house.orchestrator.cancel(run_id)
    assert await house.store.open_runs("kron") == 1


async def test_attempts_are_read_with_the_ends_of_their_outputs(house: House) -> None:
    await house.put(node("a"), node("b"))
    run_id = await house.start()
    for each in await claim(house.store):
        await finish(house.store, each, GOOD._replace(output=f"{'x' * 70_000}{each.task.task_id}"))
    whole = await house.store.attempts(run_id)
    assert [(each.task_id, len(each.output or ""), (each.output or "")[-2:]) for each in whole] == [
        ("a", PART_OUTPUT, "xa"),
        ("b", PART_OUTPUT, "xb"),
    ]
    (single,) = await house.store.attempts(run_id, "a")
    assert len(single.output or "") == WHOLE_OUTPUT


# --- queued, leased and retried while the clock was ahead ----------------------------------------------

AHEAD = NOW + 86_400_000


async def test_a_task_that_was_queued_while_the_clock_was_ahead_is_due(house: House) -> None:
    await house.put(node("a"), node("b", "a"))
    run_id = await house.start()
    (first,) = await claim(house.store, now=AHEAD)
    assert await finish(house.store, first, now=AHEAD)
    assert (await house.state(run_id)).tasks["b"].due_at == AHEAD
    assert await house.store.next_due(NOW) is None
    (second,) = await claim(house.store)
    assert second.task.task_id == "b"


async def test_a_lease_longer_than_any_of_a_right_clock_is_taken_over(house: House) -> None:
    await house.put(node("a"))
    await house.start()
    await claim(house.store, "dead", now=AHEAD)
    assert await claim(house.store) == []
    latest = DagClaimRequest("w", NOW, NOW + 1_000, 100, latest_lease=AHEAD + 1_000)
    assert await house.store.claim(latest) == []
    (taken,) = await house.store.claim(latest._replace(latest_lease=NOW + 1_000))
    assert (taken.task.worker, taken.task.lease_until, taken.taken_over) == ("w", NOW + 1_000, True)
    assert await house.store.claim(latest._replace(latest_lease=NOW + 1_000)) == []


async def test_a_retry_waits_for_its_delay_and_not_for_the_instant_of_a_clock_that_was_ahead(
    house: House,
) -> None:
    await house.put(node("a", retries=2, retry_delay="10m"))
    run_id = await house.start()
    (first,) = await claim(house.store, now=AHEAD)
    assert await finish(house.store, first, TaskEnd(AttemptOutcome.FAILED, "no"), now=AHEAD)
    check = DagClaimRequest("w", NOW, NOW + 1_000, 100, latest_lease=NOW + 61_000)
    assert await claim(house.store) == []
    assert await house.store.claim(check) == []
    assert (await house.state(run_id)).tasks["a"].due_at == NOW + 600_000
    assert await house.store.next_due(NOW) == NOW + 600_000
    assert await house.store.claim(check._replace(now=NOW + 599_999)) == []
    (again,) = await claim(house.store, now=NOW + 600_000)
    assert again.task.attempt == 2


async def test_states_of_many_runs_are_read_together(house: House) -> None:
    await house.put(node("a"))
    started = [await house.start(rerun_key=f"r{number}") for number in range(45)]
    await house.orchestrator.cancel(started[7])
    statuses = await house.store.statuses([*started, "absent"])
    assert len(statuses) == 45
    assert [each for each in started if statuses[each] is DagRunStatus.CANCELLED] == [started[7]]
    assert await house.store.statuses([]) == {}


async def test_the_first_failed_task_of_a_run_is_found_with_its_error(house: House) -> None:
    await house.put(node("a"), node("b"))
    run_id = await house.start()
    assert await house.store.failed_task(run_id) is None
    for each in await claim(house.store):
        await finish(house.store, each, TaskEnd(AttemptOutcome.FAILED, f"{each.task.task_id} is wrong"))
    assert await house.store.failed_task(run_id) == ("a", "a is wrong")


async def test_decisions_read_the_results_of_branches_and_no_others(house: House) -> None:
    await house.put(node("a"), node("choose", branch=True), node("b", "choose"))
    run_id = await house.start()
    for each in await claim(house.store):
        await finish(house.store, each, GOOD._replace(result='["b"]'))
    tasks = (await state_of(house.store, run_id)).tasks
    assert [task.result for task in tasks.values()] == [None, '["b"]', None]
    assert await house.store.results(run_id, ["b", "choose", "a"]) == {"a": '["b"]', "choose": '["b"]'}
    # Written again without being read, a result stays.
    await house.orchestrator.clear(run_id, ["choose"])
    assert await house.store.results(run_id, ["a", "choose"]) == {"a": '["b"]'}


async def test_a_claim_reads_the_results_its_task_needs_up_to_the_largest_document(house: House) -> None:
    names = [f"t{number}" for number in range(45)]
    await house.put(*map(node, names), node("other"), node("join", *names), parallelism=100)
    run_id = await house.start()
    for each in await claim(house.store):
        assert each.upstream == {}
        await finish(house.store, each, GOOD._replace(result=f'"{"x" * (MAX_RESULT - 2)}"'))
    (join,) = await claim(house.store)
    assert set(join.upstream) < set(names)
    assert MAX_DOCUMENT < sum(map(len, join.upstream.values())) <= MAX_DOCUMENT + MAX_NAMES * MAX_RESULT
    assert len(await house.store.results(run_id, names)) == 45
