"""Which runs are in flight: those of a target that reports, from their launch to their end."""

import pytest

from kron.core.job.outcome import Outcome
from kron.core.plan.record import Result, key_of
from kron.core.plan.report import Launch
from kron.fronts.service.runs import Feedback, take_feedback
from kron.launchers.delivery import DeliveryResult, RemoteLauncher
from kron.ports import Store
from kron.runtime.engine import Engine
from kron.testing import Step
from tests.engine_stage import HOUR, SPACE, job_of, stage_on
from tests.service.registrar_rig import MINUTE, MINUTELY, NOON, SECOND, office_on

NOON_S = int(NOON.timestamp())
SILENT = {"kind": "http", "url": "https://executor.example/start"}


@pytest.mark.parametrize("launcher", [SILENT, {**SILENT, "reports": False}, {"kind": "celery", "task": "t"}])
async def test_a_run_of_a_target_that_does_not_report_is_enqueued_and_not_in_flight(
    store: Store, launcher: dict[str, object]
) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, "launcher": launcher, "overlap_policy": "skip"})
        office.launchers[str(launcher["kind"])].then("minutely", *[Step.HANG] * 4)
        await office.work()
        await office.until(NOON + 4 * MINUTE)
        assert await office.seen("minutely") == ["ENQUEUED due"] * 4
        assert not any(run.in_flight for run in await office.runs("minutely"))


async def test_a_run_of_a_target_that_reports_is_in_flight_until_its_end_is_reported(store: Store) -> None:
    async with office_on(store) as office:
        launcher = {**SILENT, "reports": True}
        await office.registrar.upsert_schedule({**MINUTELY, "launcher": launcher, "overlap_policy": "skip"})
        office.launchers["http:reports"].then("minutely", Step.HANG, Step.HANG)
        await office.work()
        await office.until(NOON + 2 * MINUTE + SECOND)
        assert await office.seen("minutely") == ["ENQUEUED due", "SKIPPED active"]
        key = key_of("minutely", NOON_S + 60)
        await take_feedback(office.registrar, key, Feedback("STARTED"))
        await office.until(NOON + 3 * MINUTE + SECOND)
        assert await office.seen("minutely") == ["STARTED due", "SKIPPED active", "SKIPPED active"]
        await take_feedback(office.registrar, key, Feedback("SUCCESS"))
        await office.until(NOON + 4 * MINUTE + SECOND)
        first, *_, last = await office.seen("minutely")
        assert (first, last) == ("SUCCESS due", "ENQUEUED due")


async def test_a_launch_that_fails_every_time_is_recorded_as_failed_with_its_reason(store: Store) -> None:
    async with stage_on(store) as stage:
        sent = []

        async def deliver(launch: Launch) -> DeliveryResult:
            sent.append(launch.run.key)
            return DeliveryResult("the executor is full", retry=True)

        launchers = {"callback": RemoteLauncher(stage.clock, deliver)}
        stage.engine = Engine(
            store, stage.clock, launchers, namespace=SPACE, owner="me", journal=stage.journal
        )
        await stage.add(job_of(schedule="0 * * * *", overlap="skip"))
        await stage.run()
        await stage.until(NOON + HOUR + 10 * MINUTE)
        (run,) = await stage.runs()
        assert sent == [run.key] * 5
        assert (run.status, run.reason, run.result) == ("FAILED", "due", Result.LAUNCH_FAILED)
        assert (run.outcome, run.is_open) == (Outcome.EXECUTED, 0)
        assert run.error == "the executor is full, tried 5 times"
