"""Tasks published to a real broker, of files; and to brokers that are away, silent, or none at all."""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.app.launchers import read_launcher, settings_of
from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.core.plan.report import Launch, LeaseStatus, RunEvent, RunReport, Traits
from kron.core.redaction import Redactor
from kron.fronts.service.settings import Settings, secrets_of
from kron.launchers.backoff import Backoff
from kron.launchers.celery.broker import Broker, parse_broker, parse_options
from kron.launchers.celery.launcher import INSTALL, NO_BROKER, CeleryLauncher
from kron.launchers.celery.spec import NOT_ALLOWED, CeleryOptions, CelerySettings, check_start
from kron.launchers.celery.threads import FairThreads
from kron.launchers.fair_queue import Share
from kron.launchers.run_token import is_run_token_of
from kron.launchers.spec import InvalidLauncherError, LauncherConfig, launcher_kind_of, launcher_text_of
from kron.launchers.workflow import WorkflowSettings, payload_of
from tests.launchers.celery.folder_broker import FolderBroker
from tests.launchers.celery.rabbit import rabbit
from tests.launchers.ear import Ear, a_launch
from tests.service.auth.authority import Authority
from tests.waiting import PATIENCE_S, until

QUICK = Backoff(max_attempts=3, first_delay=timedelta(milliseconds=5), max_delay=timedelta(milliseconds=20))
PASSWORD = "open sesame"
LOGIN = "ann:open%20sesame@"


@pytest.fixture
def files(tmp_path: Path) -> FolderBroker:
    return FolderBroker(tmp_path / "broker")


@asynccontextmanager
async def launching(
    broker: Broker | None, *, secret: bytes | None = None, timeout_s: float = 15.0
) -> AsyncIterator[CeleryLauncher]:
    launcher = CeleryLauncher(SystemClock(), broker, secret=secret, backoff=QUICK, timeout_s=timeout_s)
    yield launcher
    async with asyncio.timeout(PATIENCE_S):
        await launcher.close()


async def result_of(launcher: CeleryLauncher, launch: Launch) -> RunReport:
    ear = Ear()
    launcher.start(launch, ear)
    assert launcher.busy
    await ear.until(lambda: ear.reports)
    assert not launcher.busy
    (report,) = ear.of(launch)
    return report


def a_task(**fields: object) -> Launch:
    return a_launch({"kind": "celery", "task": "tasks.report", **fields})


# --- what is published ---------------------------------------------------------------------------


async def test_a_task_has_the_key_as_its_id_and_the_start_arguments_in_a_header(files: FolderBroker) -> None:
    launch = a_task(args=[1, "ü"], kwargs={"pages": 2}, workflow_id="etl", version=3, user_id="ann")
    async with launching(files.broker()) as launcher:
        report = await result_of(launcher, launch)
    assert (report.happened, report.error, report.run_id) == (RunEvent.ACCEPTED, None, launch.run.key)
    (published,) = files.published()
    assert (published.task, published.task_id) == ("tasks.report", launch.run.key)
    assert (published.args, published.kwargs) == ([1, "ü"], {"pages": 2})
    assert published.kron == {
        "workflow_id": "etl",
        "version": 3,
        "user_id": "ann",
        "scheduled_for": "2026-03-01T12:00:00Z",
        "idempotency_key": launch.run.key,
        "identity": "backup",
        "attempt": 1,
        "fencing_token": 7,
        "data_interval_start": "2026-03-01T11:00:00Z",
        "data_interval_end": "2026-03-01T12:00:00Z",
    }
    assert files.queues() == {"celery"}


async def test_a_further_attempt_has_the_same_id_and_says_which_it_is(files: FolderBroker) -> None:
    async with launching(files.broker()) as launcher:
        for attempt in (1, 2):
            await result_of(launcher, a_launch({"kind": "celery", "task": "t"}, attempt=attempt))
    # Files of one millisecond have no order.
    found = sorted((each.task_id, str(each.kron["attempt"])) for each in files.published())
    assert found == [(a_task().run.key, "1"), (a_task().run.key, "2")]


@pytest.mark.parametrize(
    ("usual", "named", "expected"),
    [("celery", None, "celery"), ("nightly", None, "nightly"), ("nightly", "urgent", "urgent")],
)
async def test_a_launcher_names_the_queue_or_the_settings_do(
    files: FolderBroker, usual: str, named: str | None, expected: str
) -> None:
    async with launching(files.broker(queue=usual)) as launcher:
        await result_of(launcher, a_task(queue=named))
    assert files.queues() == {expected}


async def test_with_a_secret_a_task_brings_a_token_for_its_run_alone(files: FolderBroker) -> None:
    secret = b"a secret that is long enough to be one"
    async with launching(files.broker(), secret=secret) as launcher:
        await result_of(launcher, a_task())
    (published,) = files.published()
    token, key = published.kron["run_token"], published.task_id
    assert is_run_token_of(token, secret, key)
    assert not is_run_token_of(token, secret, f"{key}x")


async def test_an_executor_of_workflows_gets_dag_and_meta(files: FolderBroker) -> None:
    launch = a_task(kwargs={"speed": "slow"})
    workflow = WorkflowSettings(workflow_id="etl", version=4, user_id="ben")
    launch = launch._replace(payload=payload_of(launch, workflow, '{"nodes":[{"id":"n"}]}'))
    async with launching(files.broker()) as launcher:
        await result_of(launcher, launch)
    (published,) = files.published()
    kwargs, said = published.kwargs, published.kron
    assert kwargs["speed"] == "slow"
    assert kwargs["dag"] == {"nodes": [{"id": "n"}]}
    assert (kwargs["meta"]["source"], kwargs["meta"]["schedule_id"]) == ("schedule", "backup")
    assert (said["workflow_id"], said["version"], said["user_id"]) == ("etl", 4, "ben")


async def test_a_task_whose_lease_lapses_before_it_is_published_waits_for_it(files: FolderBroker) -> None:
    statuses = [LeaseStatus.HELD, LeaseStatus.LAPSED, LeaseStatus.LAPSED]
    launch = a_task()._replace(lease_status=lambda: statuses.pop(0) if statuses else LeaseStatus.HELD)
    async with launching(files.broker()) as launcher:
        assert (await result_of(launcher, launch)).happened is RunEvent.ACCEPTED
    assert (len(files.published()), statuses) == (1, [])


async def test_a_task_is_not_published_by_a_worker_whose_lease_was_lost(files: FolderBroker) -> None:
    statuses = [LeaseStatus.HELD]
    launch = a_task()._replace(lease_status=lambda: statuses.pop(0) if statuses else LeaseStatus.LOST)
    ear = Ear()
    async with launching(files.broker()) as launcher:
        launcher.start(launch, ear)
        await until(lambda: not launcher.busy)
    assert (files.published(), ear.reports) == ([], [])


@pytest.mark.parametrize("reports", [False, True])
def test_who_consumes_a_task_runs_it_later_and_elsewhere(reports: bool) -> None:
    launcher = CeleryLauncher(SystemClock(), None, reports=reports)
    assert launcher.traits == Traits(reports=reports, idempotent=True, enqueues=True, remote=True)


async def test_hundreds_of_tasks_are_published_once_each(files: FolderBroker) -> None:
    launches = [a_launch({"kind": "celery", "task": "t"}, identity=f"job {number}") for number in range(300)]
    ear = Ear()
    async with launching(files.broker()) as launcher:
        for launch in launches:
            launcher.start(launch, ear)
        await ear.until(lambda: len(ear.reports) == len(launches))
    assert {report.happened for report in ear.reports} == {RunEvent.ACCEPTED}
    assert sorted(each.task_id for each in files.published()) == sorted(launch.run.key for launch in launches)


# --- when it cannot be published -----------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def test_a_broker_that_is_away_is_tried_a_few_times_and_named_without_its_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    port = free_port()
    broker = Broker(url=f"amqp://{LOGIN}127.0.0.1:{port}/jobs")
    async with launching(broker) as launcher:
        report = await result_of(launcher, a_task())
    assert report.happened is RunEvent.LAUNCH_FAILED
    error = str(report.error)
    assert error.startswith(f"the broker amqp://127.0.0.1:{port}/jobs cannot be reached: OperationalError: ")
    assert error.endswith("Connection refused, tried 3 times")
    assert not any(secret in f"{error} {caplog.text} {broker}" for secret in (PASSWORD, "sesame"))


async def test_a_broker_that_falls_silent_costs_its_launches_a_bounded_time_and_nobody_else_any() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with launching(Broker(url=f"amqp://{LOGIN}127.0.0.1:{port}/"), timeout_s=0.2) as launcher:
            report = await result_of(launcher, a_task())
    assert report.happened is RunEvent.LAUNCH_FAILED
    assert report.error == f"the broker amqp://127.0.0.1:{port}/ did not answer within 0.2 s, tried 3 times"


async def test_a_broker_that_comes_back_gets_the_task(files: FolderBroker) -> None:
    away = files.folder.with_name("away")
    patient = Backoff(
        max_attempts=1_000, first_delay=timedelta(milliseconds=5), max_delay=timedelta(milliseconds=5)
    )
    launcher, ear = CeleryLauncher(SystemClock(), files.broker(), backoff=patient), Ear()
    first, second = a_task(), a_launch({"kind": "celery", "task": "t"}, identity="other")
    launcher.start(first, ear)
    await ear.accepted(first)
    # The connection that was kept is of no use now, nor is a new one.
    files.folder.rename(away)
    launcher.start(second, ear)
    (delivery,) = launcher._deliveries.values()
    await until(lambda: delivery.failures >= 2)
    away.rename(files.folder)
    await ear.accepted(second)
    await launcher.close()
    assert {report.happened for report in ear.reports} == {RunEvent.ACCEPTED}
    assert len(files.published()) == 2


@pytest.mark.parametrize(
    ("url", "error"),
    [
        pytest.param("pigeon://h/", "cannot be used: KeyError: 'No such transport: pigeon'", id="unknown"),
        pytest.param(
            f"redis://{LOGIN}h/",
            "cannot be used without redis: pip install 'celery[redis]'",
            id="a package is missing",
            marks=pytest.mark.skipif(find_spec("redis") is not None, reason="redis is installed"),
        ),
    ],
)
async def test_what_cannot_pass_is_not_tried_again(url: str, error: str) -> None:
    broker = Broker(url=url)
    async with launching(broker) as launcher:
        report = await result_of(launcher, a_task())
    assert (report.happened, report.error) == (
        RunEvent.LAUNCH_FAILED,
        f"the broker {broker.shown} {error}",
    )


async def test_without_a_broker_nothing_is_launched() -> None:
    async with launching(None) as launcher:
        report = await result_of(launcher, a_task())
    assert (report.happened, report.error) == (RunEvent.LAUNCH_FAILED, NO_BROKER)


async def test_settings_of_another_kind_are_refused() -> None:
    async with launching(None) as launcher:
        report = await result_of(launcher, a_launch({"kind": "http", "url": "http://h/"}))
    assert (report.happened, report.error) == (
        RunEvent.LAUNCH_FAILED,
        'Invalid launcher: launcher.kind "http": must be "celery" here',
    )


async def test_what_is_no_longer_allowed_is_not_published(files: FolderBroker) -> None:
    async with launching(files.broker()) as launcher:
        config = LauncherConfig((CeleryOptions(allowed_tasks=frozenset({"tasks.other"})),))
        launcher.check = partial(check_start, config)
        report = await result_of(launcher, a_task())
    assert report.happened is RunEvent.LAUNCH_FAILED
    assert report.error == f'Invalid launcher: launcher.task "tasks.report": {NOT_ALLOWED}'
    assert not files.published()


# --- over AMQP -----------------------------------------------------------------------------------


async def test_a_task_is_accepted_when_the_broker_has_confirmed_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with rabbit() as broker:
        async with launching(Broker(url=f"amqp://{LOGIN}127.0.0.1:{broker.port}/")) as launcher:
            launches = [a_launch({"kind": "celery", "task": "t"}, identity=name) for name in ("a", "b", "c")]
            for launch in launches:
                assert (await result_of(launcher, launch)).happened is RunEvent.ACCEPTED
                # What was kept is gone before the next one: it is published at once over a new connection.
                broker.hang_up()
    pairs = zip(launches, broker.taken, strict=True)
    assert all(launch.run.key.encode() in taken.properties for launch, taken in pairs)
    assert "retrying" not in caplog.text


async def test_a_task_that_the_broker_does_not_confirm_is_not_accepted() -> None:
    with rabbit() as broker:
        broker.confirms = False
        async with launching(Broker(url=f"amqp://127.0.0.1:{broker.port}/"), timeout_s=0.3) as launcher:
            report = await result_of(launcher, a_task())
    assert broker.taken
    assert report.happened is RunEvent.LAUNCH_FAILED
    assert "did not answer within 0.3 s" in str(report.error)


async def test_the_next_address_is_asked_where_the_first_is_away() -> None:
    with rabbit() as broker:
        url = f"amqp://{LOGIN}127.0.0.1:{free_port()}/;amqp://{LOGIN}127.0.0.1:{broker.port}/"
        async with launching(Broker(url=url)) as launcher:
            assert (await result_of(launcher, a_task())).happened is RunEvent.ACCEPTED
    assert len(broker.taken) == 1


@pytest.mark.parametrize(
    ("host", "is_trusted", "error"),
    [
        pytest.param("127.0.0.1", True, None, id="right"),
        pytest.param("127.0.0.2", True, "mismatch", id="of another host"),
        pytest.param("127.0.0.1", False, "certificate verify failed", id="of an unknown authority"),
    ],
)
async def test_a_certificate_is_that_of_the_address_signed_by_somebody_trusted(
    host: str, is_trusted: bool, error: str | None, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.certificate("broker"))
    options = {"ssl": {"ca_certs": str(authority.path)}} if is_trusted else {}
    with rabbit(tls, host=host) as broker:
        url = f"amqps://{LOGIN}{host}:{broker.port}/"
        async with launching(Broker(url=url, options=options)) as launcher:
            report = await result_of(launcher, a_task())
    assert (report.happened is RunEvent.ACCEPTED) == (error is None), report.error
    assert (error or "") in str(report.error)
    assert len(broker.taken) == (error is None)


# --- only who uses Celery needs it ---------------------------------------------------------------

MISSING = """
import asyncio, sys
sys.modules["celery"] = None  # what an installation without it looks like
from kron.clocks.system import SystemClock
from kron.launchers.celery.broker import Broker
from kron.launchers.celery.launcher import CeleryLauncher
from tests.launchers.ear import Ear, a_launch

async def main():
    launcher, ear = CeleryLauncher(SystemClock(), Broker(url="amqp://h/")), Ear()
    launcher.start(a_launch({"kind": "celery", "task": "t"}), ear)
    await launcher.close()
    print(ear.reports[0].error)

asyncio.run(main())
"""
LOADED = """
import sys
import kron
import kron.fronts.service.serve
from kron.clocks.system import SystemClock
from kron.fronts.service.settings import Settings
from kron.fronts.service.launchers import launchers_of
from kron.launchers.callback import CallbackLauncher

async def main():
    clock, settings = SystemClock(), Settings(celery_broker="amqp://h/")
    made = launchers_of(clock, settings, calls=CallbackLauncher(clock), workflows=None, functions={})
    print("celery" in made, *(name in sys.modules for name in ("celery", "kombu", "amqp")))

import asyncio
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(MISSING, f"the broker amqp://h/ cannot be used: {INSTALL}", id="missing"),
        pytest.param(LOADED, "True False False False", id="not loaded"),
    ],
)
@pytest.mark.slow
def test_celery_is_loaded_with_the_first_task_and_named_where_it_is_missing(
    code: str, expected: str, tmp_path: Path
) -> None:
    env = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


# --- launcher objects ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected", "kind"),
    [
        pytest.param({"task": "a.b"}, CelerySettings(task="a.b"), "celery", id="least"),
        pytest.param(
            {"task": "a", "queue": None, "args": None, "kwargs": None, "reports": True},
            CelerySettings(task="a", reports=True),
            "celery:reports",
            id="null is absent",
        ),
        pytest.param(
            {
                "task": "a",
                "queue": "q-1",
                "args": [{"b": 1}],
                "kwargs": {"z": None, "a": "ü"},
                "workflow_id": "w",
                "version": 3,
                "user_id": "u",
            },
            CelerySettings(
                task="a",
                queue="q-1",
                args='[{"b": 1}]',
                kwargs='{"a": "ü", "z": null}',
                workflow_id="w",
                version=3,
                user_id="u",
            ),
            "celery",
            id="all fields",
        ),
    ],
)
def test_what_is_right_is_read_stored_and_read_again(
    value: dict[str, object], expected: CelerySettings, kind: str
) -> None:
    settings = read_launcher({"kind": "celery", **value})
    assert settings == expected
    assert launcher_kind_of(settings) == kind
    assert settings_of(launcher_text_of(settings)) == settings


@pytest.mark.parametrize(
    ("fields", "path", "reason"),
    [
        pytest.param({"task": None}, "task", "is missing", id="no task"),
        pytest.param({"task": ""}, "task", "must be 1 to 200 of", id="empty task"),
        pytest.param({"task": 7}, "task", "must be a string", id="task is a number"),
        pytest.param({"task": "a b"}, "task", "must be 1 to 200 of", id="task of two words"),
        pytest.param({"task": "a" * 201}, "task", "must be 1 to 200 of", id="long task"),
        pytest.param({"queue": "../../etc/x"}, "queue", "must be 1 to 200 of", id="queue is a path"),
        pytest.param({"queue": "a\n"}, "queue", "must be 1 to 200 of", id="queue ends a line"),
        pytest.param({"queue": ["a"]}, "queue", "must be a string", id="queue is a list"),
        pytest.param({"args": {"a": 1}}, "args", "must be a list", id="args is an object"),
        pytest.param({"args": "ab"}, "args", "must be a list", id="args is a text"),
        pytest.param({"args": [float("nan")]}, "args", "must be a JSON document", id="no number"),
        pytest.param({"args": ["\ud800"]}, "args", "must be valid Unicode", id="half a sign"),
        pytest.param({"kwargs": [1]}, "kwargs", "must be an object", id="kwargs is a list"),
        pytest.param({"kwargs": {1: 2}}, "kwargs", "whose names are texts", id="name is a number"),
        pytest.param({"kwargs": {"a": {1}}}, "kwargs", "must be a JSON document", id="kwargs has a set"),
        pytest.param({"reports": "yes"}, "reports", "must be true or false", id="reports"),
        pytest.param({"version": "1"}, "version", "must be a whole number", id="version"),
        pytest.param({"broker": "amqp://h/"}, "broker", "unknown field", id="a broker of its own"),
        pytest.param({"args": ["x" * 65_536]}, "", "at most 65536 are allowed", id="too large"),
    ],
)
def test_what_is_wrong_is_refused_with_its_path(fields: dict[str, object], path: str, reason: str) -> None:
    with pytest.raises(InvalidLauncherError) as refused:
        read_launcher({"kind": "celery", "task": "t", **fields})
    (problem,) = refused.value.problems
    assert problem.path == f"launcher.{path}".rstrip(".")
    assert reason in problem.reason


# --- brokers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("amqp://h", "amqp://h", id="plain"),
        pytest.param("amqp://ann:pass@h:5672/v", "amqp://h:5672/v", id="with a login"),
        pytest.param("redis://:pass@h/0?password=pass", "redis://h/0?***", id="with a query"),
        pytest.param("amqp://a:pass@h;amqps://b:word@i/", "amqp://h;amqps://i/", id="two"),
        pytest.param("filesystem://", "filesystem://", id="files"),
        pytest.param("sqla+postgresql://a:pass@h/d", "sqla+postgresql://h/d", id="a database"),
    ],
)
def test_an_address_is_shown_without_user_and_password(url: str, shown: str) -> None:
    assert parse_broker(url) == url
    assert Broker(url=url).shown == shown


@pytest.mark.parametrize(
    "url",
    [
        "", "h:5672", "://h", "amqp:/h", "amqp://h:70000", "amqp://h:0", "amqp://ann:pass@h /", "amqp://h;",
        7, "amqp://ann:pa/ss@h", "amqp://ann:1/pass@h", "amqp://ann:pass#word@h", None, "amqp://ann:pass@[h",
    ],
)  # fmt: skip
def test_a_wrong_address_is_refused_and_not_quoted(url: object) -> None:
    with pytest.raises(InputError) as refused:
        parse_broker(url)
    assert "pass" not in str(refused.value).replace("user:password@broker", "")


@pytest.mark.parametrize("text", ["[1]", "7", "{", "pass", None])
def test_wrong_options_are_refused_and_not_quoted(text: object) -> None:
    with pytest.raises(InputError) as refused:
        parse_options(text)
    assert "pass" not in str(refused.value)


@given(password=st.text(st.characters(categories=("L", "N", "P", "S")), min_size=8), host=st.just("h"))
def test_no_password_stays_in_a_text(password: str, host: str) -> None:
    url = f"redis://ann:{quote(password, safe='')}@{host}:1/0?password={quote(password, safe='')}"
    options = {"sentinel_kwargs": {"password": password}, "predefined": [{"secret_access_key": password}]}
    broker = Broker(url=parse_broker(url), options=options)
    text = f"<{password}> {url} {json.dumps(options, ensure_ascii=False)[:40]} <{password}>"
    logged = Redactor(secrets_of(Settings(celery_broker=url, celery_options=options)))
    for hidden in (broker.hide(text), logged.hide(text)):
        assert f"<{password}>" not in hidden
        assert f":{quote(password, safe='')}@" not in hidden
    assert quote(password, safe="") not in f"{broker.shown} {broker!r}"


def test_an_address_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.txt"
    settings = Settings(celery_broker_file=str(file), celery_queue="q", celery_options={"a": 1})
    file.write_text(f"amqp://{LOGIN}h/\n")
    assert settings.broker == Broker(url=f"amqp://{LOGIN}h/", queue="q", options={"a": 1})
    assert PASSWORD in secrets_of(settings)
    file.write_text(f"amqp:/{LOGIN}h/")
    with pytest.raises(InputError) as refused:
        assert settings.broker is None
    assert "sesame" not in str(refused.value)


def test_plain_options_stay_readable() -> None:
    broker = Broker(url="filesystem://", options={"data_folder_in": "broker", "region": "eu-west-1"})
    assert broker.hide("the broker in eu-west-1") == "the broker in eu-west-1"


# --- calls beside the event loop -----------------------------------------------------------------


@pytest.fixture
def gate() -> Iterator[Event]:
    gate = Event()
    yield gate
    gate.set()


def threads(per_tenant: int = 2) -> FairThreads:
    return FairThreads(name="test", most=2 * per_tenant, per_tenant=per_tenant, per_target=9)


async def test_a_call_that_hangs_keeps_only_its_thread_and_one_given_up_is_never_made(gate: Event) -> None:
    aside, made = threads(), list[str]()

    def wait() -> None:
        gate.wait()

    hanging = [asyncio.create_task(aside.call(wait, Share("ann"))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await aside.call(lambda: made.append("given up"), Share("ann"))
    gate.set()
    await asyncio.gather(*hanging)
    await aside.call(lambda: made.append("later"), Share("ann"))
    assert made == ["later"]
    aside.close()


async def test_calls_that_hang_for_ever_take_no_thread_of_another_tenant(gate: Event) -> None:
    aside, made = threads(), list[str]()

    def wait() -> None:
        gate.wait()

    hanging = []
    for tenant in ("ann", "bob", "cem"):
        for _ in range(3):
            call = aside.call(wait, Share(tenant), timeout_s=0.01)
            hanging.append(asyncio.create_task(call))
    # Those in a thread were given up long ago, and still have it; the others wait for their turn.
    await until(lambda: sum(each.done() for each in hanging) == 5)
    # All four threads are taken, and the reserved one of the third tenant; so is one of this tenant.
    await aside.call(lambda: made.append("dan"), Share("dan"))
    assert made == ["dan"]
    gate.set()
    await asyncio.wait(hanging)
    aside.close()


async def test_what_a_call_raises_is_raised_and_its_thread_goes_on() -> None:
    aside, made = threads(1), list[int]()
    with pytest.raises(ZeroDivisionError):
        await aside.call(lambda: made.append(1 // 0), Share("ann"))
    await aside.call(lambda: made.append(1), Share("ann"))
    aside.close()
    # A closed launcher may start again.
    await aside.call(lambda: made.append(2), Share("ann"))
    aside.close()
    assert made == [1, 2]
