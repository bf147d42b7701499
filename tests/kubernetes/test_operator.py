"""The operator: what KronJobs become, in simulated time against the double."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

import kron
from kron.core.time.instant import rfc3339
from kron.fronts.operator.crd import crds
from kron.fronts.operator.dry_run import planned_jobs, read_manifests
from kron.fronts.operator.probes import metrics_of
from tests.kubernetes.api_server import Fault
from tests.kubernetes.cluster import Cluster, kronjob, minute, running_cluster
from tests.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster() as running:
        yield running


async def test_a_kronjob_creates_a_job_at_each_period(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"concurrency": "allow"}))
    assert cluster.status()["identity"] == "default/a"
    assert cluster.status()["next"] == {
        "nominalTime": "2026-06-01T12:01:00Z",
        "chosenTime": "2026-06-01T12:01:00Z",
    }
    await cluster.advance(minute(3, 10))
    await until(lambda: cluster.jobs() == ["12:01", "12:02", "12:03"])
    assert cluster.status()["active"] == 3
    await cluster.complete("12:01")
    await cluster.complete("12:02", failed=True)
    results = {row["periodId"][11:16]: row.get("result") for row in cluster.status()["periods"]}
    assert results == {"12:01": "success", "12:02": "failed", "12:03": None}
    assert cluster.status()["lastOutcome"] == "executed"
    assert cluster.condition("Ready")["status"] == "True"


async def test_the_cluster_ends_a_job_that_an_operator_died_before_it_could_end(cluster: Cluster) -> None:
    await cluster.start()
    timed = kronjob(policy={"runTimeout": "90s", "concurrency": "allow"})
    await cluster.add(timed)
    await cluster.advance(minute(1, 10))
    await until(lambda: cluster.jobs() == ["12:01"])
    assert cluster.job_of("12:01")["spec"]["activeDeadlineSeconds"] == 150


async def test_a_job_says_everything_about_its_run(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(window={"duration": "30s"}, identity="team/nightly"))
    await cluster.advance(minute(1, 59))
    await until(lambda: cluster.jobs() == ["12:01"])
    job = cluster.job_of("12:01")
    notes, labels = job["metadata"]["annotations"], job["metadata"]["labels"]
    assert labels["kron.io/period"] == "20260601T120100Z"
    assert (notes["kron.io/identity"], notes["kron.io/attempt"]) == ("team/nightly", "1")
    assert notes["kron.io/data-interval-start"] == "2026-06-01T12:00:00Z"
    assert notes["kron.io/data-interval-end"] == "2026-06-01T12:01:00Z"
    assert int(notes["kron.io/fencing-token"]) == cluster.status()["fencingToken"] == 1
    certificate = json.loads(notes["kron.io/decision"])
    definition = {"identity": "team/nightly", "schedule": "* * * * *", "window": {"duration": "30s"}}
    assert certificate == kron.decide(kron.Job.from_dict(definition), minute(1)).to_dict()
    owner = job["metadata"]["ownerReferences"][0]
    assert owner["uid"] == cluster.server.object("kronjobs", "a")["metadata"]["uid"]
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    variables = {each["name"]: each["value"] for each in env}
    assert variables["KRON_PERIOD_ID"] == "2026-06-01T12:01:00Z"


async def test_forbid_skips_while_a_job_is_active(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob())
    await cluster.advance(minute(2, 10))
    await until(lambda: cluster.jobs() == ["12:01"])
    assert cluster.periods() == {"12:01": "executed: due", "12:02": "skipped: active"}
    await cluster.complete("12:01")
    await cluster.advance(minute(3, 10))
    await until(lambda: cluster.jobs() == ["12:01", "12:03"])


async def test_replace_deletes_in_the_foreground_and_waits(cluster: Cluster) -> None:
    cluster.server.lingering = True
    await cluster.start()
    await cluster.add(kronjob(policy={"concurrency": "replace", "replaceGrace": "30s"}))
    await cluster.advance(minute(2))
    await until(lambda: "deletionTimestamp" in cluster.job_of("12:01")["metadata"])
    assert cluster.jobs() == ["12:01"]
    assert cluster.periods()["12:02"] == "None: replacing"
    cluster.server.finish_deletion(cluster.job_of("12:01")["metadata"]["name"])
    await until(lambda: cluster.jobs() == ["12:02"])
    assert cluster.periods()["12:01"] == "executed: replaced"


async def test_a_suspended_kronjob_handles_nothing(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"suspend": True, "deadline": "never"}))
    await cluster.advance(minute(3, 10))
    assert cluster.jobs() == []
    assert cluster.status()["periods"] == []
    assert cluster.condition("Ready")["reason"] == "Suspended"
    await cluster.edit("a", {"spec": {"policy": {"suspend": False, "concurrency": "allow"}}})
    await until(lambda: cluster.jobs() == ["12:01", "12:02", "12:03"])


@pytest.mark.slow
async def test_a_night_with_the_cluster_off_is_caught_up_oldest_first(cluster: Cluster) -> None:
    cluster.options = replace(cluster.options, tick_ms=1_000, lease_duration=timedelta(hours=1))
    await cluster.start()
    await cluster.add(kronjob(policy={"concurrency": "allow", "deadline": "never", "catchup": "all"}))
    await cluster.stop()
    await cluster.advance(minute(8 * 60))
    await cluster.start()
    await cluster.advance(minute(8 * 60, 50))
    await until(lambda: len(cluster.jobs()) == 480)
    assert cluster.creations() == 480
    assert len(cluster.status()["state"]) < 200_000


async def test_a_deadline_makes_late_periods_missed_and_says_so(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"deadline": "90s"}))
    await cluster.stop()
    await cluster.advance(minute(10))
    await cluster.start()
    await until(lambda: cluster.jobs() == ["12:09"])
    (missed,) = [row for row in cluster.status()["periods"] if row["outcome"] == "missed"]
    assert (missed["periodId"][11:16], missed["until"][11:16]) == ("12:01", "12:08")
    assert missed["reason"] == "deadline"
    (note,) = [note for reason, note in await cluster.events(3) if reason == "Missed"]
    assert note.startswith("8 periods from 2026-06-01T12:01:00Z to 2026-06-01T12:08:00Z: ")


async def test_the_next_start_is_the_chosen_time_and_the_dry_run_says_the_same(cluster: Cluster) -> None:
    await cluster.start()
    document = kronjob(schedule="5 12 * * *", window={"mode": "after", "duration": "30m"}, identity="team/a")
    await cluster.add(document)
    seconds = round(cluster.clock.now().timestamp())
    (planned,) = planned_jobs(read_manifests([document]), seconds, 1)
    times = {"nominalTime": rfc3339(planned.nominal_time), "chosenTime": rfc3339(planned.chosen_time)}
    assert cluster.status()["next"] == times
    assert planned.chosen_time > planned.nominal_time
    await cluster.advance(minute(36))
    await until(lambda: cluster.jobs() == ["12:05"])
    job = cluster.job_of("12:05")["metadata"]
    assert (job["name"], job["annotations"]["kron.io/chosen-time"]) == (planned.job, times["chosenTime"])


async def test_a_job_that_cannot_be_created_is_a_condition_until_one_can(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob())
    cluster.server.faults = [Fault(lambda each: (each.verb, each.resource) == ("create", "jobs"), status=403)]
    await cluster.advance(minute(1, 10))
    await until(lambda: cluster.condition("SchedulingError")["status"] == "True")
    assert cluster.condition("SchedulingError")["reason"] == "JobNotCreated"
    assert cluster.condition("Ready")["status"] == "False"
    await cluster.advance(minute(2, 10))
    await until(lambda: cluster.jobs() == ["12:02"])
    await cluster.complete("12:02")
    await until(lambda: cluster.condition("SchedulingError")["status"] == "False")


async def test_an_edit_never_starts_anything_in_the_past(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(schedule="0 * * * *"))
    await cluster.advance(minute(30))
    await cluster.edit("a", {"spec": {"schedule": "*/20 * * * *"}})
    await cluster.advance(minute(41))
    await until(lambda: cluster.jobs() == ["12:40"])


async def test_an_edit_made_while_the_operator_was_down_holds_before_any_start(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"deadline": "never"}))
    await cluster.stop()
    cluster.server.edit("kronjobs", "a", {"spec": {"policy": {"suspend": True}}})
    await cluster.advance(minute(5))
    await cluster.start()
    await cluster.advance(minute(6))
    assert cluster.jobs() == []


async def test_an_annotation_runs_a_kronjob_now_and_only_once(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(schedule="0 0 * * *", policy={"suspend": True}))
    cluster.server.edit("kronjobs", "a", {"metadata": {"annotations": {"kron.io/run-now": "first"}}})
    await until(lambda: len(cluster.jobs()) == 1)
    assert cluster.server.objects("jobs")[0]["metadata"]["labels"]["kron.io/kind"] == "manual"
    assert cluster.status()["runRequest"] == "first"
    await cluster.complete(cluster.jobs()[0])
    await cluster.stop()
    await cluster.start()
    await cluster.advance(minute(5))
    assert len(cluster.jobs()) == 1
    cluster.server.edit("kronjobs", "a", {"metadata": {"annotations": {"kron.io/run-now": "second"}}})
    await until(lambda: len(cluster.jobs()) == 2)


async def test_an_annotation_pauses_with_its_reason_and_its_removal_resumes(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"catchup": "none"}))
    cluster.server.edit("kronjobs", "a", {"metadata": {"annotations": {"kron.io/paused": "migration"}}})
    await until(lambda: cluster.status().get("paused") == "migration")
    await cluster.advance(minute(2, 30))
    assert cluster.jobs() == []
    cluster.server.edit("kronjobs", "a", {"metadata": {"annotations": {"kron.io/paused": None}}})
    await until(lambda: cluster.status().get("paused") is None)
    await cluster.advance(minute(3, 10))
    await until(lambda: cluster.jobs() == ["12:03"])


async def test_an_invalid_spec_is_a_condition_and_the_old_definition_stays(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob("b", timezone="Mars/Olympus"))
    assert cluster.condition("InvalidSpec", "b")["status"] == "True"
    assert "Mars/Olympus" in cluster.condition("InvalidSpec", "b")["message"]
    await cluster.add(kronjob())
    await cluster.edit("a", {"spec": {"schedule": "61 * * * *"}})
    assert cluster.condition("InvalidSpec")["status"] == "True"
    await cluster.advance(minute(1, 10))
    await until(lambda: cluster.jobs() == ["12:01"])
    await cluster.edit("a", {"spec": {"schedule": "* * * * *"}})
    assert cluster.condition("Ready")["status"] == "True"


async def test_two_kronjobs_cannot_share_an_identity(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob("a", identity="same"))
    await cluster.add(kronjob("b", identity="same"))
    assert cluster.condition("InvalidSpec", "b")["reason"] == "IdentityTaken"
    await cluster.advance(minute(1, 10))
    await until(lambda: len(cluster.jobs()) == 1)
    cluster.server.remove("kronjobs", "a")
    await until(lambda: "state" in cluster.status("b"))


async def test_a_calendar_of_the_namespace_keeps_days_free(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(constraints={"avoid": {"calendars": ["holidays"]}}))
    assert cluster.condition("InvalidSpec")["status"] == "True"
    document = {"apiVersion": "kron.io/v1alpha1", "kind": "KronCalendar", "metadata": {"name": "holidays"}}
    cluster.server.add("kroncalendars", {**document, "spec": {"days": ["2026-06-01"]}})
    await until(lambda: "state" in cluster.status())
    await cluster.advance(minute(1, 10))
    assert cluster.periods() == {"12:01": "unschedulable: no_candidate"}
    assert cluster.condition("Unschedulable")["status"] == "True"


async def test_a_deleted_kronjob_takes_its_jobs_with_it_and_its_successor_repeats_no_period(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"concurrency": "allow"}))
    await cluster.advance(minute(1, 10))
    await until(lambda: cluster.jobs() == ["12:01"])
    cluster.server.remove("kronjobs", "a")
    await until(lambda: cluster.jobs() == [] and not cluster.operator.store.books)
    await cluster.add(kronjob(policy={"concurrency": "allow", "deadline": "never"}))
    await cluster.advance(minute(2, 10))
    await until(lambda: cluster.jobs() == ["12:02"])


async def test_a_failed_job_is_retried_under_another_name(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(schedule="0 * * * *", policy={"retryDelay": "10s"}))
    await cluster.advance(minute(60, 1))
    await until(lambda: cluster.jobs() == ["13:00"])
    first = cluster.job_of("13:00")["metadata"]["name"]
    cluster.server.complete(first, failed=True)
    await until(lambda: any(run.waits_for_retry for run in cluster.operator.store.books["default/a"].runs))
    await cluster.advance(minute(60, 30))
    await until(lambda: cluster.jobs() == ["13:00", "13:00"])
    notes = [each["metadata"]["annotations"] for each in cluster.server.objects("jobs")]
    assert sorted(each["kron.io/attempt"] for each in notes) == ["1", "2"]


async def test_old_jobs_are_deleted_beyond_the_history_limits(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0))
    for number in range(1, 4):
        await cluster.advance(minute(number, 10))
        period = f"12:{number:02}"
        await until(lambda period=period: period in cluster.jobs())  # type: ignore[misc]
        await cluster.complete(period, failed=number == 2)
    await until(lambda: len(cluster.jobs()) == 1)


async def test_every_outcome_is_an_event_and_a_line_of_the_decision_log(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kron.engine")
    await cluster.start()
    await cluster.add(kronjob())
    await cluster.advance(minute(2, 10))
    await until(lambda: cluster.jobs() == ["12:01"])
    await cluster.complete("12:01")
    assert [reason for reason, _ in await cluster.events(3)] == ["Skipped", "Started", "Succeeded"]
    written = [str(each.msg).split(":")[0] for each in caplog.records if each.name == "kron.engine"]
    words = [line.split()[0] for line in written if "default/a" in line]
    assert [word for word in words if word != "noted"] == ["started", "dropped", "ended"]


async def test_kronjobs_that_wait_to_be_reconciled_are_counted(cluster: Cluster) -> None:
    await cluster.start()
    assert "kron_operator_queue_depth 0" in list(metrics_of(cluster.operator))
    gate = asyncio.Event()
    cluster.server.faults = [Fault(lambda each: each.verb == "patch", gate=gate, times=10**9)]
    for number in range(40):
        cluster.server.add("kronjobs", kronjob(f"a{number}", "0 0 * * *"))
    controller = cluster.operator.controller
    await until(lambda: controller.depth > 0)
    assert f"kron_operator_queue_depth {controller.depth}" in list(metrics_of(cluster.operator))
    gate.set()
    await until(lambda: controller.depth == 0 and len(cluster.operator.store.books) == 40)
    text = "\n".join(metrics_of(cluster.operator))
    assert "kron_operator_reconcile_seconds_count 40" in text
    assert 'kron_operator_api_requests_total{verb="patch",resource="kronjobs/status"} 40' in text


async def test_events_of_long_names_and_texts_are_accepted(cluster: Cluster) -> None:
    await cluster.start()
    name = "a" * 253
    cluster.server.add("kronjobs", kronjob(name, schedule="1 12 * * *"))
    await cluster.observed(name)
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    job = cluster.job_of("12:01")["metadata"]["name"]
    end = {"type": "Failed", "status": "True", "message": "ü" * 2_000}
    conditions = [{"type": "FailureTarget", "status": "True"}, end]
    status = {"startTime": "2026-06-01T12:01:00Z", "conditions": conditions}
    cluster.server._patch(cluster.server.kind("jobs"), ("default", job), {"status": status}, part="status")
    (_, note), (started, _) = await cluster.events(2)
    assert note.startswith("2026-06-01T12:01:00Z: failed: üü")
    assert started == "Started"


def test_the_next_start_is_a_text_because_a_date_ahead_is_shown_as_invalid() -> None:
    columns = crds()[0]["spec"]["versions"][0]["additionalPrinterColumns"]
    kinds = {each["jsonPath"]: each["type"] for each in columns}
    assert kinds[".status.next.chosenTime"] == "string"


async def test_an_idle_kronjob_costs_no_request(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(schedule="0 0 1 1 *"))
    before = len(cluster.server.requests)
    await cluster.advance(minute(30))
    used = [each for each in cluster.server.requests[before:] if each.resource != "leases"]
    assert used == []


async def test_a_namespace_can_have_its_own_operator() -> None:
    async with running_cluster(namespace="team", lease_name="team") as cluster:
        await cluster.start()
        await cluster.add(kronjob(), namespace="team")
        cluster.server.add("kronjobs", kronjob("other"))
        await cluster.advance(minute(1, 10))
        await until(lambda: cluster.jobs() == ["12:01"])
        assert cluster.status("other") == {}


async def test_a_clock_that_is_set_back_repeats_nothing(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"concurrency": "allow"}))
    await cluster.advance(minute(3, 10))
    await until(lambda: cluster.jobs() == ["12:01", "12:02", "12:03"])
    cluster.clock.jump_to(minute(1, 30))
    await cluster.advance(minute(3, 5))
    await cluster.kill()
    await cluster.start()
    await cluster.advance(minute(3, 50))
    assert cluster.jobs() == ["12:01", "12:02", "12:03"]
    assert cluster.creations() == 3


async def test_one_operator_leads_and_another_takes_over(cluster: Cluster) -> None:
    cluster.options = replace(cluster.options, lease_duration=timedelta(seconds=15), tick_ms=1000)
    first = await cluster.start()
    await cluster.add(kronjob(policy={"concurrency": "allow", "deadline": "never"}))
    second = await cluster.start(wait=False)
    await until(lambda: second.worker.engine.health.state == "standby" or second.worker.state == "waiting")
    await cluster.advance(minute(1, 10))
    await until(lambda: cluster.jobs() == ["12:01"])
    operator, task = cluster.operators.pop(0)
    assert operator is first
    first.kill()
    task.cancel()
    await cluster.advance(minute(2, 10))
    await until(lambda: cluster.jobs() == ["12:01", "12:02"])
    assert cluster.job_of("12:02")["metadata"]["annotations"]["kron.io/fencing-token"] == "2"
