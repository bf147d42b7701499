"""Jobs at boot: one run for each boot of the host, whatever happens to krond, with an answer to why."""

import pickle
from pathlib import Path

import pytest

from kron import Runner
from kron.app.catalog import Catalog, JobDefinition
from kron.cli.main import GOOD, run
from kron.core.cron.schedule import Schedule
from kron.core.errors import InputError, InvalidJobError
from kron.core.job.job import Job
from kron.core.plan.record import RunKind
from kron.fronts.daemon.job_set import start_boot_jobs
from kron.fronts.service.schedule_spec import Rules, parse_definition, parse_schedule_spec
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from tests.daemon.krond import Krond
from tests.waiting import wait_for

BOOT = {"identity": "host/boot", "schedule": "@reboot", "command": "echo up"}
NOW = 1_800_000_000_000


def catalog_of(store: Store) -> Catalog:
    return Catalog(store, "krond", now=lambda: NOW)


def test_a_schedule_at_boot_has_no_times_and_is_the_same_everywhere() -> None:
    job = Job.from_dict(BOOT)
    assert job.schedule.is_boot
    assert job.schedule.plan.next_after(0) is None
    assert job.schedule.plan.prev_at_or_before(2_000_000_000) is None
    assert job.schedule.describe() == job.schedule.sentence == "At every boot of the host"
    assert Job.from_dict(job.to_dict()) == job
    assert pickle.loads(pickle.dumps(job.schedule)) == job.schedule
    assert not Schedule("@daily").is_boot


async def test_each_boot_starts_a_job_once_and_only_jobs_at_boot() -> None:
    store = SqliteStore(":memory:")
    catalog = catalog_of(store)
    await catalog.upsert(
        [
            JobDefinition(Job.from_dict(BOOT)),
            JobDefinition(Job.from_dict({"identity": "a", "schedule": "@daily"})),
        ]
    )
    for boot in ("one", "one", "two", "one"):
        await start_boot_jobs(catalog, boot)
    runs = await store.runs("krond", "host/boot")
    assert [run.kind for run in runs] == [RunKind.BOOT] * 2
    assert await store.runs("krond", "a") == []
    await store.close()


async def test_why_answers_before_the_first_boot() -> None:
    store = SqliteStore(":memory:")
    catalog = catalog_of(store)
    await catalog.upsert([JobDefinition(Job.from_dict(BOOT))])
    answer = await catalog.query.why("host/boot", "latest")
    assert answer.headline == "no run: krond has not been started at a boot since the job was created"
    await store.close()


def test_a_program_refuses_a_job_at_boot() -> None:
    runner = Runner(state="memory://", name="boot")
    with pytest.raises(InvalidJobError, match="only krond starts jobs at boot"):
        runner.add(Job.from_dict(BOOT), print)


def test_a_service_refuses_a_job_at_boot() -> None:
    launcher = {"kind": "http", "url": "https://example.com/"}
    with pytest.raises(InputError, match="only krond starts jobs at boot"):
        parse_schedule_spec({"cron_expr": "@reboot", "launcher": launcher}, Rules(), schedule_id="a")
    with pytest.raises(InputError, match="only krond starts jobs at boot"):
        parse_definition({"identity": "a", "schedule": "@reboot", "launcher": launcher}, Rules())


def test_lint_accepts_a_job_at_boot_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "host.yaml"
    file.write_text('{ identity: a, schedule: "@reboot", command: echo up, deadline: 1m }')
    assert run(["lint", str(file), "--strict"]) == GOOD, capsys.readouterr()


@pytest.mark.slow
def test_krond_starts_it_once_however_often_krond_starts(tmp_path: Path) -> None:
    krond = Krond(tmp_path, "--crontab", str(tmp_path / "tab"))
    # Cron accepts both lines, and the second one never starts.
    (tmp_path / "tab").write_text("@reboot cat%of a crontab\n58-2 * * * * echo never\n")
    krond.write("host.yaml", 'jobs: [{ name: boot, schedule: "@reboot", command: echo up }]')
    for _ in range(2):
        krond.start()
        (started,) = wait_for(lambda: krond.runs("host/boot"), krond.log_text)
        ended = krond.ended("host/boot", started["idempotency_key"])
        assert (ended["status"], ended["kind"], ended["reason"]) == ("SUCCESS", "boot", "boot")
        assert krond.output("host/boot") == "up\n"
        answer = krond.call("why", "host/boot", "latest")
        assert "krond started first in this boot" in str(answer)
        (other,) = [name for name in krond.names() if name.startswith("tab/cat-")]
        (of_crontab,) = wait_for(lambda: krond.runs(other), krond.log_text)  # noqa: B023
        assert krond.ended(other, of_crontab["idempotency_key"])["status"] == "SUCCESS"
        assert krond.output(other) == "of a crontab\n"
        assert krond.stop() == 0
