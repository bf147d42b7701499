"""Executions that go through a queue of Celery's: other processes consume and run them."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping

from kron.core.errors import InvalidOptionError
from kron.launchers.backoff import Backoff
from kron.launchers.celery.broker import Broker, BrokerError, CeleryTask, Publishes
from kron.launchers.celery.spec import NOT_ALLOWED, CelerySettings
from kron.launchers.celery.threads import DaemonThreads
from kron.launchers.delivery import USUAL_BACKOFF, RemoteLauncher
from kron.launchers.http.request import DeliveryResult, document_of
from kron.launchers.report import plain_request_of, tidy
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import settings_of
from kron.ports import Clock, Launch

# How long publishing a task may take in all, in seconds.
PUBLISH_S = 15.0
# How many tasks are published at once, each over a connection of its own; the others wait in order.
MAX_THREADS = 4
# The header that says which execution a task is.
HEADER = "kron"
INSTALL = "Celery is not installed where the worker runs: pip install 'kron-scheduler[celery]'"
NO_BROKER = "there is no broker for tasks: set celery_broker, e.g. as KRON_CELERY_BROKER"


class CeleryLauncher(RemoteLauncher):
    """Publishes a task for each execution; a broker that has taken it has accepted the execution.

    The task's id is the run's key, and whoever consumes it has to honour that: a task may come twice. With a
    `secret` it brings a token for reporting on the run. Celery is loaded with the first task.
    """

    def __init__(
        self,
        clock: Clock,
        broker: Broker | None,
        *,
        reports: bool = False,
        secret: bytes | None = None,
        backoff: Backoff = USUAL_BACKOFF,
        seconds: float = PUBLISH_S,
    ) -> None:
        super().__init__(clock, self._sent, reports=reports, backoff=backoff, max_requests=MAX_THREADS)
        # Asked before each start, because what is allowed may have changed since a job was registered.
        self.allow: Callable[[CelerySettings], bool] | None = None
        self._broker = broker
        self._secret = secret
        self._seconds = seconds
        self._publisher = _Lazy()
        self._aside = DaemonThreads(MAX_THREADS, name="kron-celery", leave=self._publisher.leave)

    async def _sent(self, launch: Launch) -> DeliveryResult:
        settings = settings_of(launch.job.launcher)
        if not isinstance(settings, CelerySettings):
            raise InvalidOptionError(
                option="launcher", value=launch.job.launcher_kind, reason="is not celery"
            )
        self._check(settings)
        if self._broker is None:
            return DeliveryResult(NO_BROKER)
        extra = {"request_id": plain_request_of(launch), "run_token": self._token_of(launch)}
        queue = settings.queue or self._broker.queue
        return await self._published(
            self._broker, lambda: task_of(launch, settings, queue=queue, extra=extra)
        )

    async def _published(self, broker: Broker, make: Callable[[], CeleryTask]) -> DeliveryResult:
        """Have a thread make and publish a task, and return what came of it."""
        tasks: list[CeleryTask] = []

        def publish() -> None:
            tasks.append(make())
            self._publisher.publish(broker, tasks[0])

        try:
            async with asyncio.timeout(self._seconds):
                await self._aside.call(publish)
        except TimeoutError:
            error = f"the broker {broker.shown} did not answer within {self._seconds:g} s"
            return DeliveryResult(error, again=True)
        except BrokerError as cause:
            return DeliveryResult(tidy(broker.hide(f"the broker {broker.shown} {cause}")), again=cause.again)
        return DeliveryResult(run_id=tasks[0].task_id)

    def _check(self, settings: CelerySettings) -> None:
        """Refuse a task that is not, or no longer, allowed."""
        if self.allow is not None and not self.allow(settings):
            raise InvalidOptionError(option="task", value=settings.task, reason=NOT_ALLOWED)

    def _token_of(self, launch: Launch) -> str | None:
        return None if self._secret is None else run_token_of(self._secret, launch.run.key)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or break them off unreported: the next owner launches them again."""
        await super().close(wait=wait)
        self._aside.close()


class _Lazy:
    """A publisher that is loaded and made by the first thread that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: Publishes | None = None

    def publish(self, broker: Broker, task: CeleryTask) -> None:
        """Publish a task, or raise BrokerError."""
        with self._lock:
            if self._made is None:
                self._made = _load(broker)
        self._made.publish(task)

    def leave(self) -> None:
        """Let go of the connection of the thread that calls."""
        if self._made is not None:
            self._made.leave()


def _load(broker: Broker) -> Publishes:
    try:
        from kron.launchers.celery.publish import Publisher
    except ModuleNotFoundError as cause:
        raise BrokerError(f"cannot be used: {INSTALL}") from cause
    return Publisher(broker)


def task_of(
    launch: Launch, settings: CelerySettings, *, queue: str, extra: Mapping[str, str | None]
) -> CeleryTask:
    """Return the task of an execution: its arguments, and in a header the start arguments of SPEC 3.

    An executor of workflows gets `dag` and `meta` as keyword arguments beside its own.
    """
    said = document_of(launch, settings)
    args, kwargs = json.loads(settings.args), json.loads(settings.kwargs)
    if launch.payload is not None:
        given = json.loads(launch.payload.document)
        kwargs |= given
        said |= {name: given["meta"][name] for name in ("workflow_id", "version", "user_id")}
    said |= {name: value for name, value in extra.items() if value is not None}
    return CeleryTask(settings.task, launch.run.key, queue, args, kwargs, {HEADER: said})
