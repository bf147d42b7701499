"""The operator through faults: never two Jobs for one period, never a handled period undone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from kron.fronts.operator.probes import metrics_of
from kron.fronts.operator.state import text_of
from tests.kubernetes.api_server import Fault, Logged
from tests.kubernetes.cluster import PERIOD_ID, TEMPLATE, Cluster, kronjob, minute, running_cluster
from tests.waiting import until

FOREVER = 10**9


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster() as running:
        yield running


def patience(**policy: object) -> dict[str, object]:
    """Return a policy under which an outage delays periods and drops none."""
    return {"concurrency": "allow", "deadline": "never", **policy}


def is_patch(each: Logged) -> bool:
    return each.verb == "patch"


def is_creation(each: Logged) -> bool:
    return (each.verb, each.resource) == ("create", "jobs")


async def test_an_expired_watch_is_continued_by_a_list(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    cluster.server.add("kronjobs", kronjob("b", policy=patience()))
    cluster.server.compact()
    cluster.server.cut_watches()
    cluster.server.add("kronjobs", kronjob("c", policy=patience()))
    cluster.server.remove("kronjobs", "a")
    await cluster.eventually(lambda: sorted(cluster.operator.store.books) == ["default/b", "default/c"])
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01", "12:01"])
    cluster.server.compact()
    cluster.server.cut_watches()
    for job in cluster.server.objects("jobs"):
        cluster.server.complete(job["metadata"]["name"])
    await cluster.eventually(lambda: not any(book.runs for book in cluster.operator.store.books.values()))


async def test_a_job_that_vanishes_unseen_is_recorded_as_deleted(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(schedule="1 12 * * *"))
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    await cluster.eventually(lambda: bool(cluster.status()["periods"][0].get("job")))
    cluster.server.remove("jobs", cluster.job_of("12:01")["metadata"]["name"])
    cluster.server.compact()
    cluster.server.cut_watches()
    await cluster.eventually(lambda: cluster.status()["periods"][0].get("result") == "failed")
    assert cluster.status()["periods"][0]["message"] == "the Job was deleted"


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_lost_answer_to_a_record_neither_loses_nor_doubles_a_job(cluster: Cluster, cut: str) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    cluster.server.faults = [Fault(is_patch, times=3, cut=cut)]
    await cluster.advance(minute(2, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01", "12:02"])
    assert cluster.ever_created() == ["12:01", "12:02"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(is_creation, times=3, status=503),
        Fault(is_creation, times=3, status=429),
        Fault(is_creation, times=3, cut="before"),
        Fault(is_creation, times=3, cut="after"),
        Fault(is_patch, times=3, status=500),
        Fault(is_patch, times=2, status=429),
        Fault(lambda each: True, times=20, delay=0.02),
    ],
    ids=["503", "429", "cut", "lost", "patch-500", "patch-429", "slow"],
)
async def test_a_fault_of_the_server_delays_a_job_and_doubles_none(cluster: Cluster, fault: Fault) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    cluster.server.faults = [fault]
    await cluster.advance(minute(1, 40))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    await cluster.complete("12:01")
    assert cluster.ever_created() == ["12:01"]
    assert cluster.status()["periods"][-1]["result"] == "success"


@pytest.mark.parametrize("is_slow", [is_creation, is_patch], ids=["jobs", "records"])
async def test_an_admission_that_takes_longer_than_the_operator_waits_doubles_nothing(
    cluster: Cluster, is_slow: Callable[[Logged], bool]
) -> None:
    """A slow webhook: the record is written all the same, later; of a Job the server is told to give up."""
    cluster.request_s = cluster.create_s = 0.5
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    cluster.server.faults = [Fault(is_slow, times=2, delay=1.0)]
    await cluster.advance(minute(1, 40))
    # The next period may not come before: on a busy machine the delays take seconds of real time.
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"], step_ms=5)
    await cluster.complete("12:01")
    await cluster.advance(minute(2, 10))
    await cluster.eventually(lambda: cluster.jobs()[-1] == "12:02")
    assert cluster.ever_created() == ["12:01", "12:02"]
    assert cluster.status()["periods"][-1]["result"] == "success"


async def test_an_edit_at_the_same_time_is_no_reason_to_miss_a_period(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob())
    # The operator has not seen this edit when it writes: its patch names an older version.
    cluster.server.faults = [Fault(lambda each: each.verb == "watch", times=FOREVER, cut="before")]
    cluster.server.cut_watches()
    cluster.server.edit("kronjobs", "a", {"metadata": {"labels": {"team": "x"}}})
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])


async def test_an_outage_loses_nothing(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    cluster.server.is_down = True
    cluster.server.cut_watches()
    await cluster.advance(minute(2, 10))
    assert cluster.jobs() == []
    assert cluster.operator.worker.health.state == "degraded"
    cluster.server.is_down = False
    await cluster.advance(minute(2, 40))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01", "12:02"])
    assert cluster.ever_created() == ["12:01", "12:02"]


async def test_a_kronjob_that_is_deleted_while_others_are_written_with_it_stops_none_of_them(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    await cluster.add(kronjob("b", policy=patience()))
    store, gate = cluster.operator.store, asyncio.Event()
    cluster.server.faults = [Fault(lambda each: is_patch(each) and each.name == "b", gate=gate)]
    advancing = asyncio.create_task(cluster.advance(minute(1, 10)))
    await until(lambda: cluster.status()["periods"])
    cluster.server.remove("kronjobs", "a")
    await until(lambda: "default/a" not in store.kronjobs)
    gate.set()
    await advancing
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    assert (cluster.operator.worker.state, list(store.books)) == ("running", ["default/b"])
    await cluster.advance(minute(2, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01", "12:02"])


async def test_a_server_that_serves_no_kind_yet_has_lost_no_object(cluster: Cluster) -> None:
    """While it starts, it answers 404 without the name of an object."""
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.status()["periods"][0].get("job"))
    is_starting = Fault(lambda each: True, times=FOREVER, status=404)
    cluster.server.faults = [is_starting]
    cluster.server.compact()
    cluster.server.cut_watches()
    await cluster.advance(minute(2, 10))
    is_starting.match = lambda each: each.resource != "jobs" or each.verb not in ("list", "watch")
    await cluster.advance(minute(2, 20))
    assert list(cluster.operator.store.books) == ["default/a"]
    cluster.server.faults = []
    await cluster.eventually(lambda: cluster.jobs() == ["12:01", "12:02"])
    results = {row["periodId"][11:16]: row.get("result") for row in cluster.status()["periods"]}
    assert results == {"12:01": None, "12:02": None}
    await cluster.complete("12:01")


@pytest.mark.parametrize("status", [404, 429, 503])
async def test_a_creation_of_a_job_that_fails_for_a_while_is_made(cluster: Cluster, status: int) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    cluster.server.faults = [Fault(is_creation, times=2, status=status)]
    await cluster.advance(minute(1, 40))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    assert cluster.condition("SchedulingError")["status"] == "False"


async def test_a_job_that_is_missing_is_looked_up_until_the_server_answers(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(schedule="1 12 * * *"))
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.status()["periods"][0].get("job"))
    cluster.server.faults = [
        Fault(lambda each: (each.verb, each.resource) == ("get", "jobs"), times=3, status=500)
    ]
    cluster.server.remove("jobs", cluster.job_of("12:01")["metadata"]["name"])
    cluster.server.compact()
    cluster.server.cut_watches()
    await cluster.eventually(lambda: cluster.status()["periods"][0].get("result") == "failed")


async def test_a_status_that_is_removed_is_written_again(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    server = cluster.server
    server._patch(server.kind("kronjobs"), ("default", "a"), {"status": {"state": None}}, part="status")
    await cluster.advance(minute(2, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01", "12:02"])
    await cluster.eventually(lambda: "state" in cluster.status())
    assert cluster.periods() == {"12:01": "executed: due", "12:02": "executed: due"}


async def test_a_record_that_cannot_be_read_starts_nothing_and_says_so(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    await cluster.stop()
    server = cluster.server
    server._patch(server.kind("kronjobs"), ("default", "a"), {"status": {"state": "{}"}}, part="status")
    await cluster.start()
    await cluster.eventually(lambda: cluster.condition("SchedulingError")["status"] == "True")
    await cluster.advance(minute(2, 10))
    assert cluster.jobs() == []


async def test_another_operators_record_is_taken_over_not_overwritten(cluster: Cluster) -> None:
    first = await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    # The first is cut off from its Lease, and does not know it; the second one takes over.
    cluster.free_lease()
    await cluster.start()
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    await cluster.advance(minute(5, 10))
    assert not first.store.is_owner
    await cluster.eventually(lambda: len(cluster.jobs()) == 5)
    assert cluster.ever_created() == ["12:01", "12:02", "12:03", "12:04", "12:05"]


async def test_an_idle_operator_whose_lease_was_taken_stands_by_and_takes_over_again(
    cluster: Cluster,
) -> None:
    operator = await cluster.start()
    await cluster.add(kronjob(schedule="0 0 * * *"))
    (lease,) = cluster.server.objects("leases")
    taken = {"holderIdentity": "other", "leaseTransitions": lease["spec"]["leaseTransitions"] + 1}
    cluster.server.edit("leases", lease["metadata"]["name"], {"spec": taken})
    await cluster.advance(minute(6))
    await cluster.eventually(lambda: operator.worker.state == "waiting")
    cluster.free_lease()
    await cluster.advance(minute(8))
    await cluster.eventually(lambda: operator.worker.state == "running")
    (_, task) = cluster.operators[0]
    assert not task.done()


async def test_an_identity_that_was_freed_while_another_led_can_be_claimed(cluster: Cluster) -> None:
    operator = await cluster.start()
    await cluster.add(kronjob("a", schedule="0 0 * * *", identity="same"))
    (lease,) = cluster.server.objects("leases")
    taken = {"holderIdentity": "other", "leaseTransitions": lease["spec"]["leaseTransitions"] + 1}
    cluster.server.edit("leases", lease["metadata"]["name"], {"spec": taken})
    await cluster.advance(minute(6))
    await cluster.eventually(lambda: operator.worker.state == "waiting")
    # It does not see the deletion: while it stands by, it need not watch.
    cluster.server.faults = [Fault(lambda each: each.verb == "watch", times=FOREVER, cut="before")]
    cluster.server.cut_watches()
    cluster.server.remove("kronjobs", "a")
    cluster.server.add("kronjobs", kronjob("b", schedule="0 0 * * *", identity="same"))
    cluster.free_lease()
    await cluster.advance(minute(8))
    await cluster.eventually(lambda: operator.worker.state == "running")
    await cluster.observed("b")
    assert cluster.condition("Ready", "b")["reason"] == "Scheduled"


@pytest.mark.parametrize("status", [422, 500])
async def test_a_record_that_is_always_refused_is_tried_again_slowly_and_stops_no_other(
    cluster: Cluster, status: int
) -> None:
    cluster.options = replace(cluster.options, tick_ms=1_000)
    await cluster.start()
    for name in ("a", "b"):
        await cluster.add(kronjob(name, policy=patience()))
    refused = Fault(lambda each: is_patch(each) and each.name == "b", times=FOREVER, status=status)
    cluster.server.faults = [refused]
    before = len(cluster.server.requests)
    for number in (1, 2, 3):
        # The Job of the other one is created at its time: the clock stands still until it is there.
        await cluster.advance(minute(number))
        await until(lambda: len(cluster.jobs()) == number)  # noqa: B023 - called in this round only
        await cluster.advance(minute(number, 40))
    assert cluster.jobs() == ["12:01", "12:02", "12:03"]
    assert cluster.operator.worker.health.state == "running"
    assert "kron_operator_refused_kronjobs 1" in list(metrics_of(cluster.operator))
    assert len(cluster.server.requests) - before < 300
    ((_, note),) = [each for each in await cluster.events(4) if each[0] == "RecordRefused"]
    assert "the record of default/b is not written" in note
    cluster.server.faults = []
    await cluster.eventually(lambda: len(cluster.jobs()) == 6)
    await cluster.advance(minute(3, 59))
    assert cluster.ever_created() == sorted(["12:01", "12:02", "12:03"] * 2)
    assert "kron_operator_refused_kronjobs 0" in list(metrics_of(cluster.operator))


async def test_the_end_of_a_job_whose_record_is_refused_is_written_later_and_delays_no_other(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.add(kronjob("b", schedule="1 12 * * *"))
    await cluster.add(kronjob("a", schedule="2,3 12 * * *", policy=patience()))
    await cluster.advance(minute(1))
    await cluster.eventually(lambda: cluster.status("b")["periods"][0].get("job"))
    cluster.server.faults = [
        Fault(lambda each: is_patch(each) and each.name == "b", times=FOREVER, status=500)
    ]
    cluster.server.complete(cluster.job_of("12:01")["metadata"]["name"])
    await until(lambda: cluster.operator.store.refusals)
    for number in (2, 3):
        await cluster.advance(minute(number))
        await until(lambda: len(cluster.jobs()) == number)  # noqa: B023 - called in this round only
        await cluster.advance(minute(number, 40))
    assert "result" not in cluster.status("b")["periods"][0]
    cluster.server.faults = []
    await cluster.eventually(lambda: cluster.status("b")["periods"][0].get("result") == "success")


async def test_a_refused_record_is_a_condition_of_its_kronjob_as_long_as_it_is_refused(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    seen: list[Logged] = []

    def is_refused(each: Logged) -> bool:
        """Refuse the records, the first and those from the third patch on; the second has conditions only."""
        if is_patch(each):
            seen.append(each)
        return is_patch(each) and len(seen) != 2

    cluster.server.faults = [Fault(is_refused, times=FOREVER, status=422)]
    await cluster.advance(minute(1))
    await until(lambda: cluster.condition("SchedulingError")["status"] == "True")
    assert cluster.condition("SchedulingError")["reason"] == "RecordRefused"
    assert cluster.condition("Ready")["status"] == "False"
    await cluster.advance(minute(1, 30))
    assert cluster.jobs() == []
    cluster.server.faults = []
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    assert cluster.condition("SchedulingError")["status"] == "False"
    assert cluster.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("status", [422, 500])
async def test_an_edit_that_is_refused_at_a_take_over_holds_its_own_kronjob_only(
    cluster: Cluster, status: int
) -> None:
    await cluster.start()
    for name in ("a", "b"):
        await cluster.add(kronjob(name, policy=patience()))
    await cluster.stop()
    cluster.server.edit("kronjobs", "b", {"spec": {"policy": {"suspend": True}}})
    cluster.server.add("kronjobs", kronjob("bad", schedule="99 * * * *"))
    refused = Fault(lambda each: is_patch(each) and each.name != "a", times=FOREVER, status=status)
    cluster.server.faults = [refused]
    await cluster.start()
    await cluster.advance(minute(1))
    await until(lambda: cluster.jobs() == ["12:01"])
    await cluster.advance(minute(1, 40))
    assert cluster.operator.store.held.keys() == {"default/b", "default/bad"}
    cluster.server.faults = []
    await cluster.eventually(lambda: not cluster.operator.store.held)
    await cluster.advance(minute(2, 40))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01", "12:02"])
    assert cluster.condition("Ready", "b")["reason"] == "Suspended"
    assert cluster.condition("InvalidSpec", "bad")["status"] == "True"


async def test_a_kronjob_whose_record_is_refused_delays_the_edit_of_no_other(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob("a", schedule="0 0 * * *"))
    cluster.server.faults = [
        Fault(lambda each: is_patch(each) and each.name == "b", times=FOREVER, status=422)
    ]
    cluster.server.add("kronjobs", kronjob("b", policy=patience()))
    await until(lambda: "default/b" in cluster.operator.store.refusals)
    await cluster.advance(minute(1))
    # The clock stands still: nothing waits for the next try of the other one.
    await cluster.edit("a", {"spec": {"schedule": "2 12 * * *"}})
    cluster.server.faults = []
    await cluster.eventually(lambda: "state" in cluster.status("b"))
    await cluster.advance(minute(2))
    await cluster.eventually(lambda: cluster.jobs() == ["12:02", "12:02"])


async def test_a_lease_that_is_deleted_makes_no_fencing_token_smaller(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    await cluster.stop()
    await cluster.start()
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    await cluster.stop()
    (lease,) = cluster.server.objects("leases")
    cluster.server.remove("leases", lease["metadata"]["name"])
    await cluster.start()
    await cluster.advance(minute(2, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01", "12:02"])
    notes = [cluster.job_of(period)["metadata"]["annotations"] for period in ("12:01", "12:02")]
    assert [each["kron.io/fencing-token"] for each in notes] == ["2", "3"]
    await cluster.stop()
    await cluster.start()
    assert cluster.operator.store._token == 4


async def test_a_record_that_another_operator_wrote_is_read_and_not_overwritten(cluster: Cluster) -> None:
    operator = await cluster.start()
    await cluster.add(kronjob(policy=patience()))
    book = operator.store.books["default/a"]
    paused = book.job._replace(revision=book.job.revision + 1, paused=1, paused_because="other", plan_at=None)
    state = text_of(replace(book, job=paused, writer="other/9/1"))
    server = cluster.server
    server._patch(server.kind("kronjobs"), ("default", "a"), {"status": {"state": state}}, part="status")
    await cluster.advance(minute(2, 10))
    assert cluster.jobs() == []
    assert operator.store.books["default/a"].job.paused_because == "other"


async def test_a_job_that_expired_before_it_was_confirmed_is_not_created_again(cluster: Cluster) -> None:
    template = {"spec": {**TEMPLATE["spec"], "ttlSecondsAfterFinished": 5}}
    await cluster.start()
    await cluster.add(kronjob(schedule="1 12 * * *", jobTemplate=template))
    cluster.server.faults = [Fault(is_creation, times=FOREVER, cut="after")]
    await cluster.advance(minute(1))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    await cluster.kill()
    cluster.server.faults = []
    cluster.server.remove("jobs", cluster.job_of("12:01")["metadata"]["name"])
    await cluster.advance(minute(1, 30))
    await cluster.start()
    await cluster.eventually(lambda: cluster.status()["periods"][0].get("result") == "failed")
    assert cluster.ever_created() == ["12:01"]


async def test_a_start_that_was_recorded_and_not_made_is_made_by_the_next_operator(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(schedule="1 12 * * *"))
    cluster.server.faults = [Fault(is_creation, times=FOREVER, cut="before")]
    await cluster.advance(minute(1))
    await cluster.kill()
    cluster.server.faults = []
    assert cluster.jobs() == []
    await cluster.start()
    await cluster.advance(minute(1, 40))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])


async def killed_in_a_webhook(cluster: Cluster, gate: asyncio.Event, schedule: str = "1 12 * * *") -> None:
    """Kill an operator while an admission webhook has its Job; Jobs that end are deleted."""
    await cluster.start()
    policy = patience(concurrency="replace")
    await cluster.add(kronjob(schedule=schedule, policy=policy, successfulJobsHistoryLimit=0))
    cluster.server.faults = [Fault(is_creation, gate=gate)]
    advancing = asyncio.create_task(cluster.advance(minute(1)))
    await until(lambda: cluster.creations() == 1)
    await cluster.kill()
    await advancing


async def ends_and_is_deleted(cluster: Cluster) -> None:
    await cluster.complete("12:01")
    await cluster.eventually(lambda: cluster.jobs() == [])


async def test_a_creation_that_a_webhook_has_is_waited_for_by_the_next_operator(cluster: Cluster) -> None:
    """Its own Job would be deleted after its end, and the name be free for the first one."""
    gate = asyncio.Event()
    await killed_in_a_webhook(cluster, gate)
    await cluster.start()
    await cluster.advance(minute(1, 20))
    assert cluster.creations() == 1
    gate.set()
    await until(lambda: cluster.jobs() == ["12:01"])
    await ends_and_is_deleted(cluster)
    await cluster.advance(minute(2, 30))
    assert (cluster.ever_created(), cluster.creations()) == (["12:01"], 1)
    assert cluster.status()["periods"][0]["result"] == "success"


async def test_leaders_that_change_often_wait_together_for_a_creation_of_an_earlier_one(
    cluster: Cluster,
) -> None:
    """Each of them leads for 10 s. The wait of 34 s is over in the time of the fourth."""
    await killed_in_a_webhook(cluster, asyncio.Event())
    for second in (10, 20, 30):
        await cluster.start()
        await cluster.advance(minute(1, second))
        assert cluster.creations() == 1
        await cluster.stop()
    await cluster.start()
    await cluster.advance(minute(1, 33))
    assert cluster.creations() == 1
    await cluster.advance(minute(1, 36))
    await until(lambda: cluster.jobs() == ["12:01"])
    assert cluster.creations() == 2


async def test_the_wait_for_a_creation_counts_from_the_last_leader_that_may_have_sent_it(
    cluster: Cluster,
) -> None:
    """The second leader sends it too, after its wait, and is killed: the third waits for all of that."""
    await killed_in_a_webhook(cluster, asyncio.Event())
    cluster.server.faults = [Fault(is_creation, gate=asyncio.Event())]
    await cluster.start()
    advancing = asyncio.create_task(cluster.advance(minute(1, 36)))
    await until(lambda: cluster.creations() == 2)
    await cluster.kill()
    await advancing
    await cluster.start()
    await cluster.advance(minute(2, 5))
    assert cluster.creations() == 2
    await cluster.advance(minute(2, 12))
    await until(lambda: cluster.creations() == 3)
    await until(lambda: cluster.jobs() == ["12:01"])


async def test_a_creation_that_a_webhook_has_too_long_is_given_up_by_the_server(cluster: Cluster) -> None:
    cluster.create_s = 0.2
    gate = asyncio.Event()
    await killed_in_a_webhook(cluster, gate)
    await until(lambda: cluster.server.refusals[504] == 1)
    await cluster.start()
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    await ends_and_is_deleted(cluster)
    gate.set()
    await asyncio.sleep(0.05)
    assert (cluster.ever_created(), cluster.creations()) == (["12:01"], 2)


async def test_a_run_that_is_replaced_before_its_job_exists_never_gets_one(cluster: Cluster) -> None:
    await killed_in_a_webhook(cluster, asyncio.Event(), schedule="0,20 1 12 * * *")
    await cluster.start()
    await cluster.advance(minute(1, 25))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    await cluster.advance(minute(3))
    (job,) = cluster.server.objects("jobs")
    assert job["metadata"]["annotations"][PERIOD_ID] == "2026-06-01T12:01:20Z"
    assert cluster.ever_created() == ["12:01"]
    rows = {row["periodId"][11:19]: row.get("result") for row in cluster.status()["periods"]}
    assert rows == {"12:01:00": "replaced", "12:01:20": None}


@pytest.mark.slow
async def test_a_creation_without_an_answer_is_not_repeated_while_it_may_be_made(cluster: Cluster) -> None:
    cluster.create_s = 0.1
    await cluster.start()
    await cluster.add(kronjob(schedule="1 12 * * *"))
    cluster.server.faults = [Fault(is_creation, cut="never")]
    await cluster.advance(minute(1))
    await until(lambda: cluster.operator.launcher._settles_at)
    await cluster.advance(minute(1, 3))
    assert cluster.creations() == 1
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    assert cluster.creations() == 2
