"""The celery launcher: runs are tasks in a queue, which Celery workers consume."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from functools import partial

from kron.core.errors import InputError
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch
from kron.launchers.backoff import Backoff
from kron.launchers.celery.broker import Broker, BrokerError, CeleryTask, TaskPublisher
from kron.launchers.celery.spec import CelerySettings
from kron.launchers.celery.threads import FairThreads
from kron.launchers.delivery import (
    DEFAULT_BACKOFF,
    TARGET_FACTOR,
    TOTAL_FACTOR,
    DeliveryResult,
    RemoteLauncher,
)
from kron.launchers.fair_queue import NO_TARGET, Share
from kron.launchers.launch import check_lease, plain_request_of, start_arguments, tenant_of, tidy
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import settings_parser
from kron.ports import Clock

_settings_of = settings_parser(CelerySettings)
# How long publishing a task may take in all, in seconds.
PUBLISH_S = 15.0
# How many tasks of one tenant are published at once, each over its own connection; its others wait in order.
MAX_THREADS = 4
# The header that identifies the run of a task.
HEADER = "kron"
INSTALL = "Celery is not installed where the worker runs: pip install 'kron-engine[celery]'"
NO_BROKER = "there is no broker for tasks: set celery_broker, e.g. as KRON_CELERY_BROKER"


class CeleryLauncher(RemoteLauncher):
    """Publishes a task for each run; the run is accepted when the broker has the task.

    The task's id is the run's key. A task may arrive twice, so its consumer has to be idempotent. With a
    `secret` the task carries the run's token. Celery is imported with the first task.
    """

    def __init__(
        self,
        clock: Clock,
        broker: Broker | None,
        *,
        reports: bool = False,
        secret: bytes | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        timeout_s: float = PUBLISH_S,
    ) -> None:
        super().__init__(clock, self._deliver, reports=reports, backoff=backoff, max_requests=MAX_THREADS)
        # Called before each start, because the allowed tasks may have changed since the registration.
        self.check: Callable[[CelerySettings], None] | None = None
        self._broker = broker
        self._secret = secret
        self._timeout_s = timeout_s
        self._publisher = _LazyPublisher()
        self._threads = FairThreads(
            name="kron-celery",
            most=TOTAL_FACTOR * MAX_THREADS,
            per_tenant=MAX_THREADS,
            per_target=TARGET_FACTOR * MAX_THREADS,
            leave=self._publisher.leave,
        )

    def target_of(self, launch: Launch) -> str:
        """Return the queue of a task: some brokers keep each queue on another node."""
        try:
            return self._queue_of(_settings_of(launch.job.launcher))
        except InputError:
            return NO_TARGET

    def _queue_of(self, settings: CelerySettings) -> str:
        return settings.queue or (NO_TARGET if self._broker is None else self._broker.queue)

    async def _deliver(self, launch: Launch) -> DeliveryResult:
        settings = _settings_of(launch.job.launcher)
        if self.check is not None:
            self.check(settings)
        if self._broker is None:
            return DeliveryResult(NO_BROKER)
        extra = {"request_id": plain_request_of(launch), "run_token": self._token_of(launch)}
        queue = self._queue_of(settings)
        task_id = self.task_id_of(launch.run)
        return await self._published(
            self._broker,
            lambda: task_of(launch, settings, task_id=task_id, queue=queue, extra=extra),
            Share(tenant_of(launch), queue),
        )

    def task_id_of(self, run: RunRecord) -> str:
        """Return the id of the task of a run: further attempts have the same one."""
        return run.key

    async def _published(
        self, broker: Broker, make: Callable[[], CeleryTask], share: Share
    ) -> DeliveryResult:
        """Make and publish a task in a thread, and return the result."""
        tasks: list[CeleryTask] = []

        def publish() -> None:
            tasks.append(make())
            self._publisher.publish(broker, tasks[0])

        try:
            async with asyncio.timeout(self._timeout_s):
                await self._threads.call(publish, share)
        except TimeoutError:
            error = f"the broker {broker.shown} did not answer within {self._timeout_s:g} s"
            return DeliveryResult(error, retry=True)
        except BrokerError as cause:
            return DeliveryResult(tidy(broker.hide(f"the broker {broker.shown} {cause}")), retry=cause.retry)
        return DeliveryResult(run_id=tasks[0].task_id)

    def _token_of(self, launch: Launch) -> str | None:
        return None if self._secret is None else run_token_of(self._secret, launch.run.key)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or abandon them unreported: the next owner launches them again."""
        await super().close(wait=wait)
        self._threads.close()


class _LazyPublisher:
    """A publisher that the first thread that needs it imports and creates."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: TaskPublisher | None = None

    def publish(self, broker: Broker, task: CeleryTask) -> None:
        """Publish a task, or raise BrokerError."""
        with self._lock:
            if self._made is None:
                self._made = _load(broker)
        self._made.publish(task)

    def leave(self) -> None:
        """Close the connection of the calling thread."""
        if self._made is not None:
            self._made.leave()


def _load(broker: Broker) -> TaskPublisher:
    try:
        from kron.launchers.celery.publish import Publisher
    except ModuleNotFoundError as cause:
        raise BrokerError(f"cannot be used: {INSTALL}") from cause
    return Publisher(broker)


def task_of(
    launch: Launch, settings: CelerySettings, *, task_id: str, queue: str, extra: Mapping[str, str | None]
) -> CeleryTask:
    """Return the task of a run: its arguments, and in a header the start arguments of SPEC 3.

    An executor of workflows gets `dag` and `meta` as further keyword arguments.
    """
    header = start_arguments(launch, settings)
    args, kwargs = json.loads(settings.args), json.loads(settings.kwargs)
    if launch.payload is not None:
        payload = json.loads(launch.payload.document)
        kwargs |= payload
        header |= {name: payload["meta"][name] for name in ("workflow_id", "version", "user_id")}
    header |= {name: value for name, value in extra.items() if value is not None}
    check = partial(check_lease, launch)
    return CeleryTask(settings.task, task_id, queue, args, kwargs, {HEADER: header}, check)
