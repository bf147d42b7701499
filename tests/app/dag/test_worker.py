"""Workers of DAG runs execute tasks in the order of their dependencies and record every attempt."""

import asyncio
import json
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from kron.app.dag.orchestrator import RunOrchestrator
from kron.app.dag.task_call import TaskContext
from kron.app.dag.worker import STORE_BACKOFF, DagWorker, DagWorkerOptions
from kron.app.dag.write import write_run
from kron.clocks.system import SystemClock
from kron.core.dag.record import AttemptOutcome, DagClaim, DagRunStatus, DagState
from kron.core.errors import StoreError
from kron.core.time.instant import EPOCH
from kron.dag_ports import DagClaimRequest, DagStore
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.spec import KubernetesOptions
from kron.launchers.spec import LauncherConfig
from kron.stores.dag import DagTables
from kron.stores.sqlite.dag import SqliteDatabase
from kron.stores.sqlite.file import MEMORY
from kron.testing import SimulatedClock
from tests.app.dag.house import House, node
from tests.kubernetes.api_server import ApiServer
from tests.waiting import until


async def test_tasks_run_after_those_they_depend_on_and_get_their_results(house: House) -> None:
    seen: list[str] = []

    async def extract(context: TaskContext) -> list[int]:
        seen.append("extract")
        return [1, 2, int(context.input["more"])]

    def load(context: TaskContext) -> int:
        seen.append("load")
        assert context.upstream == {"extract": [1, 2, 3]}
        return sum(context.arguments["rows"])

    await house.put(node("load", "extract", arguments={"rows": {"$result": "extract"}}), node("extract"))
    run_id = await house.start(input={"more": 3})
    await house.work({"extract": extract, "load": load})
    state = await house.state(run_id)
    assert seen == ["extract", "load"]
    assert state.run.status is DagRunStatus.SUCCESS
    assert await house.store.results(run_id, ["load", "absent"]) == {"load": "6"}


async def test_a_failed_task_is_retried_and_every_attempt_is_recorded(house: House) -> None:
    async def flaky(context: TaskContext) -> None:
        print("attempt", context.attempt)  # noqa: T201 (its output is captured)
        if context.attempt < 3:
            raise ValueError("not yet")

    await house.put(node("flaky", retries=2, retry_delay="10ms"))
    run_id = await house.start()
    await house.work({"flaky": flaky})
    attempts = await house.store.attempts(run_id)
    assert [each.outcome for each in attempts] == ["failed", "failed", "success"]
    assert attempts[0].error == "ValueError: not yet"
    assert "attempt 1" in (attempts[0].output or "")
    assert "Traceback" in (attempts[0].output or "")
    assert await house.statuses(run_id) == {"flaky": "success"}


async def test_tasks_that_never_end_leave_slots_to_other_users(dags: DagStore, tmp_path: Path) -> None:
    house, released, ended = House(dags, tmp_path), asyncio.Event(), list[str]()

    async def hang(_: TaskContext) -> None:
        await released.wait()

    async def quick(context: TaskContext) -> None:
        ended.append(context.run_id)

    many = [node(f"t{number}", function="hang") for number in range(20)]
    for user in ("ann", "bob", "dan"):
        await house.orchestrator.put_version(f"{user}.endless", 1, {"nodes": many}, user_id=user)
    for user in ("ann", "bob"):
        await house.start(f"{user}.endless")
    await house.orchestrator.put_version("cem.short", 1, {"nodes": [node("quick")]}, user_id="cem")
    worker = house.worker({"hang": hang, "quick": quick}, slots=4)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.executing == 4)
    assert Counter(each.claim.run.user_id for each in worker._executions.values()) == {"ann": 2, "bob": 2}
    # All slots are taken for ever; a user of which no task executes has one of its own.
    runs = [await house.start("cem.short", day) for day in ("2026-01-01", "2026-01-02")]
    await until(lambda: ended == runs)
    await until(lambda: worker.executing == 4)
    await house.start("dan.endless")
    await until(lambda: worker.executing > 4)
    beyond = Counter(each.claim.run.user_id for each in worker._executions.values())
    assert beyond == {"ann": 2, "bob": 2, "dan": 1}
    released.set()
    worker.stop()
    await running


async def test_after_the_last_retry_the_tasks_behind_it_do_not_run(house: House) -> None:
    async def broken(_: TaskContext) -> None:
        raise RuntimeError("no")

    async def fine(_: TaskContext) -> None:
        return None

    await house.put(
        node("broken", retries=1, retry_delay=0),
        node("after", "broken", function="fine"),
        node("cleanup", "after", function="fine", trigger_rule="all_done"),
        node("alarm", "broken", function="fine", trigger_rule="one_failed"),
    )
    run_id = await house.start()
    await house.work({"broken": broken, "fine": fine})
    assert await house.statuses(run_id) == {
        "broken": "failed",
        "after": "upstream_failed",
        "cleanup": "success",
        "alarm": "success",
    }
    assert (await house.state(run_id)).run.status is DagRunStatus.FAILED


async def test_processes_write_their_output_and_their_last_line_is_their_result(house: House) -> None:
    command = [sys.executable, "-c", "import os; print('hello', os.environ['KRON_TASK_ID']); print('[7]')"]
    await house.put({"id": "a", "type": "process", "command": command, "result": "last_line"})
    run_id = await house.start()
    await house.work()
    (attempt,) = await house.store.attempts(run_id)
    assert attempt.output == "hello a\n[7]\n"
    assert await house.store.results(run_id, ["a"]) == {"a": "[7]"}


async def test_a_process_that_fails_has_its_exit_status_as_error(house: House) -> None:
    await house.put({"id": "a", "type": "process", "command": "echo gone; exit 3"})
    run_id = await house.start()
    await house.work()
    task = (await house.state(run_id)).tasks["a"]
    assert (task.status, "exit status 3" in (task.error or "")) == ("failed", True)


async def test_an_attempt_that_takes_too_long_is_ended(house: House) -> None:
    async def slow(_: TaskContext) -> None:
        await asyncio.sleep(3600)

    await house.put(
        node("slow", timeout="50ms"),
        {"id": "sleep", "type": "process", "command": ["sleep", "3600"], "timeout": "50ms"},
    )
    run_id = await house.start()
    await house.work({"slow": slow})
    assert await house.statuses(run_id) == {"slow": "failed", "sleep": "failed"}
    outcomes = {each.outcome for each in await house.store.attempts(run_id)}
    assert outcomes == {AttemptOutcome.TIMEOUT}


async def test_a_cancelled_run_ends_what_executes_and_starts_nothing_more(house: House) -> None:
    started = asyncio.Event()

    async def slow(_: TaskContext) -> None:
        started.set()
        await asyncio.sleep(3600)

    await house.put(node("slow"), node("after", "slow", function="slow"))
    run_id = await house.start()
    worker = house.worker({"slow": slow}, lease=timedelta(milliseconds=300))
    running = asyncio.create_task(worker.run(until=house.is_over))
    await started.wait()
    await house.orchestrator.cancel(run_id)
    await running
    assert await house.statuses(run_id) == {"slow": "cancelled", "after": "cancelled"}
    assert (await house.state(run_id)).run.status is DagRunStatus.CANCELLED


async def test_a_branch_chooses_the_tasks_after_it(house: House) -> None:
    async def choose(_: TaskContext) -> str:
        return "full"

    async def fine(_: TaskContext) -> None:
        return None

    await house.put(
        node("choose", branch=True),
        node("full", "choose", function="fine"),
        node("partial", "choose", function="fine"),
        node("deep", "partial", function="fine"),
        node("join", "full", "deep", function="fine", trigger_rule="none_failed"),
    )
    run_id = await house.start()
    await house.work({"choose": choose, "fine": fine})
    assert await house.statuses(run_id) == {
        "choose": "success", "full": "success", "partial": "skipped", "deep": "skipped", "join": "success",
    }  # fmt: skip


async def test_a_branch_to_a_task_that_does_not_follow_fails(house: House) -> None:
    async def choose(_: TaskContext) -> str:
        return "elsewhere"

    await house.put(node("choose", branch=True), node("after", "choose", function="choose"))
    run_id = await house.start()
    await house.work({"choose": choose})
    assert await house.statuses(run_id) == {"choose": "failed", "after": "upstream_failed"}


async def test_a_function_that_is_not_registered_fails_its_task(house: House) -> None:
    await house.put(node("absent"))
    run_id = await house.start()
    await house.work()
    task = (await house.state(run_id)).tasks["absent"]
    assert (task.status, task.error) == ("failed", "no function is registered for the job")


async def test_failed_tasks_are_run_again_on_request(house: House) -> None:
    broken = [True]

    async def work(_: TaskContext) -> None:
        if broken[0]:
            raise RuntimeError("no")

    await house.put(
        node("a", function="fine"), node("b", "a", function="work"), node("c", "b", function="fine")
    )

    async def fine(_: TaskContext) -> None:
        return None

    functions = {"work": work, "fine": fine}
    run_id = await house.start()
    await house.work(functions)
    broken[0] = False
    await house.orchestrator.retry(run_id)
    await house.work(functions)
    assert await house.statuses(run_id) == dict.fromkeys("abc", "success")
    assert [each.attempt for each in await house.store.attempts(run_id, "a")] == [1]
    assert [each.outcome for each in await house.store.attempts(run_id, "b")] == ["failed", "success"]
    await house.orchestrator.clear(run_id, ["b"])
    await house.work(functions)
    assert [each.attempt for each in await house.store.attempts(run_id, "c")] == [1, 2]


async def test_a_stopped_worker_ends_its_functions_as_lost_and_another_one_retries_them(house: House) -> None:
    started = asyncio.Event()

    async def slow(context: TaskContext) -> None:
        started.set()
        if context.attempt == 1:
            await asyncio.sleep(3600)

    await house.put(node("slow", retries=1, retry_delay=0))
    run_id = await house.start()
    first = asyncio.create_task(house.worker({"slow": slow}, name="first").run())
    await started.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await house.work({"slow": slow}, name="second")
    attempts = await house.store.attempts(run_id)
    assert [(each.worker, each.outcome) for each in attempts] == [("first", "lost"), ("second", "success")]


async def test_a_process_outlives_its_worker_and_the_next_one_resumes_it(
    house: House, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f"echo began; while [ ! -e {gate} ]; do sleep 0.02; done; echo over"
    await house.put({"id": "a", "type": "process", "command": command})
    run_id = await house.start()
    worker = house.worker(name="first")
    first = asyncio.create_task(worker.run())
    await until(lambda: worker.executing == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(house.worker(name="second").run(until=house.is_over))
    await asyncio.sleep(0.2)
    gate.touch()
    await second
    (attempt,) = await house.store.attempts(run_id)
    assert (attempt.attempt, attempt.outcome, attempt.output) == (1, "success", "began\nover\n")


async def test_a_process_that_another_worker_has_resumed_is_left_alone(house: House, tmp_path: Path) -> None:
    gate, out = tmp_path / "gate", tmp_path / "out"
    command = f"while [ ! -e {gate} ]; do sleep 0.02; done; touch {out}"
    await house.put({"id": "a", "type": "process", "command": command})
    await house.start()
    worker = house.worker(name="first", lease=timedelta(seconds=1))
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.executing == 1)
    later = 1000 * int(time.time() + 3600)
    (resumed,) = await house.store.claim(DagClaimRequest("second", later, 2 * later, 1))
    assert (resumed.task.attempt, resumed.task.worker) == (1, "second")
    await until(lambda: worker.executing == 0)
    gate.touch()
    await until(out.exists)
    worker.stop()
    await running


async def test_no_task_of_a_paused_dag_starts(house: House) -> None:
    async def fine(_: TaskContext) -> None:
        return None

    await house.put(node("a", function="fine"))
    await house.store.set_paused("etl", paused=True)
    run_id = await house.start()
    worker = house.worker({"fine": fine})
    running = asyncio.create_task(worker.run(until=house.is_over))
    await asyncio.sleep(0.2)
    assert await house.statuses(run_id) == {"a": "queued"}
    await house.store.set_paused("etl", paused=False)
    await running
    assert await house.statuses(run_id) == {"a": "success"}


async def test_a_task_may_be_a_job_of_a_cluster(house: House) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    task = {"type": "kubernetes", "name": "etl", "template": {"spec": {"template": {"spec": pod}}}}
    await house.put(
        node("extract"), {"id": "load", "dependsOn": ["extract"], **task}, {"id": "other", **task}
    )
    async with ApiServer().running() as cluster:
        run_ids = [await house.start(), await house.start(rerun_key="again")]
        config = LauncherConfig((KubernetesOptions(access=ClusterAccess(cluster.url)),))
        working = asyncio.create_task(house.work({"extract": lambda _: 7}, config=config))
        await until(lambda: len(cluster.objects("jobs")) == 4)
        for job in cluster.objects("jobs"):
            (container,) = job["spec"]["template"]["spec"]["containers"]
            variables = {each["name"]: each["value"] for each in container["env"]}
            if variables["KRON_TASK_ID"] == "load":
                assert json.loads(variables["KRON_PAYLOAD"])["upstream"] == {"extract": 7}
            failed = variables["KRON_TASK_ID"] == "other" and variables["KRON_RUN_ID"] == run_ids[0]
            cluster.complete(job["metadata"]["name"], failed=failed)
        await working
    assert await house.statuses(run_ids[0]) == {"extract": "success", "load": "success", "other": "failed"}
    assert set((await house.statuses(run_ids[1])).values()) == {"success"}


class AwayStore(DagTables):
    """A store in memory that fails while it `is_away`; `asked` holds the seconds at which it was asked."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(SqliteDatabase(MEMORY))
        self.is_away = False
        self.asked: list[float] = []
        self._clock = clock

    async def claim(self, request: DagClaimRequest) -> list[DagClaim]:
        self.asked.append(self._clock.monotonic())
        if self.is_away:
            raise StoreError("it is away")
        return await super().claim(request)


async def test_a_worker_asks_a_store_that_fails_less_and_less_often_until_it_answers(tmp_path: Path) -> None:
    clock = SimulatedClock(datetime(2026, 6, 1, tzinfo=UTC))
    store = AwayStore(clock)
    tick = timedelta(minutes=1)
    worker = DagWorker(store, DagWorkerOptions(name="w", tick=tick, functions={}), clock)
    running = asyncio.create_task(worker.run())
    expected = [int(1000 * (STORE_BACKOFF.delay_after("w", number) or 10)) / 1000 for number in range(1, 7)]
    for _ in range(2):
        store.is_away = True
        store.asked.clear()
        await clock.advance_to(clock.now() + tick + timedelta(seconds=sum(expected)))
        waits = [round(after - before, 3) for before, after in pairwise(store.asked)]
        assert waits[:6] == expected
        store.is_away = False
        await clock.advance_to(clock.now() + tick)
    worker.stop()
    await running
    await store.close()


# --- a clock that is set -------------------------------------------------------------------------------


class SetClock(SystemClock):
    """A wall clock that is set by hand; the monotonic one runs on."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead

    async def sleep_until(self, instant: datetime) -> None:
        await super().sleep_until(instant - self.ahead)


async def happens(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds; the timeout of the test ends what never happens."""
    while not await condition():  # noqa: ASYNC110 - nothing signals a stored lease
        await asyncio.sleep(0.02)


async def test_leases_and_timeouts_outlive_a_clock_that_was_ahead(house: House) -> None:
    """An excursion of a day, as tasks run: none times out, each stays leased, and what it queued is due."""
    clock = house.clock = SetClock()
    house.orchestrator = RunOrchestrator(house.store, house.workflows, clock)
    may_end, running = asyncio.Event(), asyncio.Event()

    async def slow(_: TaskContext) -> None:
        running.set()
        await may_end.wait()

    async def quick(_: TaskContext) -> None:
        pass

    await house.put(node("slow", timeout="1h"), node("quick", "slow"))
    first = await house.start(day="2026-06-01")
    worker = house.worker({"slow": slow, "quick": quick}, lease=timedelta(seconds=3))
    working = asyncio.create_task(worker.run())

    async def lease_until(at_least: int = 0, at_most: int = 1 << 60) -> bool:
        return at_least <= ((await house.state(first)).tasks["slow"].lease_until or 0) <= at_most

    def now() -> int:
        return (clock.now() - EPOCH) // timedelta(milliseconds=1)

    await running.wait()
    clock.ahead = timedelta(days=1)
    worker.wake()
    second = await house.start(day="2026-06-02")
    await happens(lambda: lease_until(at_least=now()))
    clock.ahead = timedelta(0)
    worker.wake()
    await happens(lambda: lease_until(at_most=now() + 3_000))
    may_end.set()
    await happens(house.is_over)
    worker.stop()
    await working
    assert await house.orchestrator.error_of(first) is None
    assert await house.orchestrator.error_of(second) is None
    for run_id in (first, second):
        assert set((await house.statuses(run_id)).values()) == {"success"}
    assert [each.attempt for each in await house.store.attempts(first)] == [1, 1]


async def test_a_task_whose_results_are_too_large_together_fails_and_says_why(house: House) -> None:
    names = [f"t{number}" for number in range(20)]
    await house.put(*(node(name) for name in names), node("join", *names), parallelism=100)
    run_id = await house.start()
    await house.work({name: lambda _: "x" * 60_000 for name in names})
    (attempt,) = await house.store.attempts(run_id, "join")
    assert attempt.error is not None
    assert attempt.error.startswith("Its document has more than 1,048,576 characters")


async def test_a_result_that_is_referred_to_again_and_again_fills_no_memory(house: House) -> None:
    references = {"all": [{"$result": "a"}] * 2_000}
    await house.put(node("a"), node("b", "a", arguments=references))
    run_id = await house.start()
    tracemalloc.start()
    try:
        await house.work({"a": lambda _: "x" * 60_000})
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
    (attempt,) = await house.store.attempts(run_id, "b")
    assert (attempt.error or "").startswith("Its document has more than 1,048,576 characters")


async def test_a_document_has_its_results_as_they_were_returned(house: House) -> None:
    seen: list[object] = []
    arguments = {
        "empty": {},
        "none": [],
        "deep": [1, {"x": {"$result": "a"}}, "ü"],
        "absent": {"$result": "z"},
    }
    await house.put(node("a"), node("b", "a", arguments=arguments))
    await house.start(input={"more": [1, None]})
    value = {"rows": [1, 2.5, None, "ü\n"], "empty": {}}
    await house.work({"a": lambda _: value, "b": seen.append})
    (context,) = seen
    assert isinstance(context, TaskContext)
    assert context.upstream == {"a": value}
    assert context.input == {"more": [1, None]}
    assert context.arguments == {
        "empty": {},
        "none": [],
        "deep": [1, {"x": value}, "ü"],
        "absent": None,
    }


@pytest.mark.parametrize(("tasks", "is_beside"), [(3, False), (400, True)])
async def test_a_decision_about_a_large_run_is_made_beside_the_event_loop(
    house: House, tasks: int, *, is_beside: bool
) -> None:
    await house.put(*(node(f"t{number}") for number in range(tasks)))
    run_id, deciders = await house.start(), []

    def decide(_: DagState) -> None:
        deciders.append(threading.get_ident())

    await write_run(house.store, run_id, decide, max_tries=1)
    assert (deciders[0] != threading.get_ident()) is is_beside
