"""The base of launchers that deliver runs to other systems: retry until accepted, then leave them alone."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from kron.core.errors import InputError, InvalidOptionError
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent, Traits
from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.fair_queue import NO_TARGET, FairQueue, Share
from kron.launchers.launch import Attempt, StartWithheldError, lease_is_lost, may_start, report_of, tenant_of
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")

DEFAULT_BACKOFF = Backoff(first_delay=timedelta(milliseconds=500), max_delay=timedelta(seconds=30))
# How many requests of one tenant are in flight at once; its others wait in order.
MAX_REQUESTS = 100
# How many are in flight to one target, and in all, as multiples of it.
TARGET_FACTOR, TOTAL_FACTOR = 2, 10
# The part of a tenant's requests that has a slot whatever the other tenants have in flight.
RESERVED_PART = 4
# How long requests in flight may still take when the launches are abandoned, in seconds.
LAST_RESPONSES_S = 3.0
# The longest name that another system may give a run.
MAX_RUN_ID = 200
# How much text of definitions the launches of one tenant may keep in memory while they wait, in characters.
# Of each the first part is not counted: how many there are is limited elsewhere.
MAX_KEPT, UNCOUNTED = 64 << 20, 4_096
TOO_MUCH_KEPT = (
    f"the waiting launches of this user have definitions of more than {MAX_KEPT >> 20} MiB together; "
    "smaller definitions, or fewer starts at once, can wait"
)


class DeliveryResult(NamedTuple):
    """The result of one request: accepted, perhaps with the other system's run id, or an error.

    With `retry` the error may be temporary; `retry_after_s` is the delay the other system asks for.
    """

    error: str | None = None
    run_id: str | None = None
    retry: bool = False
    retry_after_s: float = 0.0


def delivery_traits(*, reports: bool) -> Traits:
    """Return the traits of delivered runs: accepted ones are queued and executed by another system."""
    return Traits(reports=reports, idempotent=True, enqueues=True, remote=True)


@dataclass(slots=True)
class _Delivery:
    """A launch that is not accepted yet, its report sink, and its failed requests.

    Its `task` sends a request or sleeps before the next; while queued it has none. `is_sent` while a request
    waits for its response. `kept` is the text that counts for its tenant once it had to wait.
    """

    launch: Launch
    sink: ReportSink
    share: Share
    failures: int = 0
    task: asyncio.Task[None] | None = None
    is_sent: bool = False
    kept: int = 0


class _KeptText:
    """The text of definitions that the waiting launches of each tenant keep in memory."""

    def __init__(self) -> None:
        self._characters: Counter[str] = Counter()

    def add(self, delivery: _Delivery) -> bool:
        """Count a delivery that has to wait, or return False if its tenant's keep too much already."""
        if delivery.kept:
            return True
        tenant = delivery.share.tenant
        launch = delivery.launch
        earlier = sum(len(known.definition) for known in launch.earlier)
        size = launch.job.text_size + earlier - UNCOUNTED
        if size <= 0:
            return True
        if self._characters[tenant] + size > MAX_KEPT:
            return False
        delivery.kept = size
        self._characters[tenant] += size
        return True

    def remove(self, delivery: _Delivery) -> None:
        """Count a delivery no more."""
        if delivery.kept:
            self._characters[delivery.share.tenant] -= delivery.kept
            delivery.kept = 0


class RemoteLauncher:
    """Delivers runs with a function that sends each of them and returns the result.

    A request without a response is sent again with the same key, so the receiver has to be idempotent. The
    end of a run is never polled: with `reports` its executor reports it, otherwise it stays unknown.
    """

    def __init__(
        self,
        clock: Clock,
        deliver: Callable[[Launch], Awaitable[DeliveryResult]],
        *,
        reports: bool = False,
        backoff: Backoff = DEFAULT_BACKOFF,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        if max_requests < 1:
            raise InvalidOptionError(option="max_requests", value=max_requests, reason="must be at least 1")
        self.traits = delivery_traits(reports=reports)
        self._clock = clock
        self._deliver_one = deliver
        self._backoff = backoff
        self._deliveries: dict[Attempt, _Delivery] = {}
        # Thousands may start at once; only those in flight have a task.
        self._queue: FairQueue[_Delivery] = FairQueue(
            most=TOTAL_FACTOR * max_requests,
            per_tenant=max_requests,
            per_target=TARGET_FACTOR * max_requests,
            reserved=max(1, max_requests // RESERVED_PART),
        )
        self._kept = _KeptText()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Return whether deliveries are queued or in flight."""
        return bool(self._deliveries)

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Queue a run for delivery; an earlier delivery of the same attempt is abandoned."""
        before = self._deliveries.get((launch.run.key, launch.run.attempt))
        if before is not None:
            self._kept.remove(before)
            if before.task is not None:
                before.task.cancel()
        share = Share(tenant_of(launch), self.target_of(launch))
        delivery = self._deliveries[launch.run.key, launch.run.attempt] = _Delivery(launch, sink, share)
        is_delayed = self.delay_before(launch) > 0
        if not is_delayed and self._queue.take_at_once(share):
            self._send(delivery)
        elif not self._kept.add(delivery):
            self._report(launch, RunEvent.LAUNCH_FAILED, TOO_MUCH_KEPT)
        elif is_delayed:
            self._spawn(delivery, self._retry(delivery, 0))
        else:
            self._queue.put(delivery, share)
            self._admit()

    def target_of(self, launch: Launch) -> str:
        """Return the system that a launch goes to, whose requests in flight are limited."""
        return NO_TARGET

    def delay_before(self, launch: Launch) -> float:
        """Return how long a launch must not be sent yet, in seconds."""
        return 0.0

    def _admit(self) -> None:
        """Send queued deliveries, of each tenant in turn, up to the limits of requests in flight."""
        while (taken := self._queue.take()) is not None:
            delivery, share = taken
            if self._is_current(delivery):
                self._send(delivery)
            else:
                self._queue.release(share)

    def _send(self, delivery: _Delivery) -> None:
        """Send a delivery that has a slot."""
        task = self._spawn(delivery, self._attempt(delivery))
        task.add_done_callback(partial(self._free_slot, delivery.share))

    def _spawn(self, delivery: _Delivery, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = delivery.task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _free_slot(self, share: Share, _: asyncio.Task[None]) -> None:
        """Admit the next delivery; a task that was cancelled before its first step frees its slot too."""
        self._queue.release(share)
        if self._queue.has_waiting:
            self._admit()

    def _is_current(self, delivery: _Delivery) -> bool:
        run = delivery.launch.run
        return self._deliveries.get((run.key, run.attempt)) is delivery

    async def _attempt(self, delivery: _Delivery) -> None:
        """Send the request; after a temporary error, schedule a retry within the backoff's bounds."""
        launch = delivery.launch
        result = None
        while result is None:  # each round waits for the lease
            if not await may_start(self._clock, launch):
                self._drop(delivery)
                return
            delivery.is_sent = True
            result = await self._result_of(launch)
            delivery.is_sent = False
        delivery.failures += 1
        if result.error is None:
            self._report(launch, RunEvent.ACCEPTED, run_id=result.run_id)
            return
        delay_s, error = None, result.error
        if result.retry:
            delay_s = self._backoff.delay_after(
                launch.run.key, delivery.failures, requested_s=result.retry_after_s
            )
            if delay_s is None:
                error = f"{error}, tried {delivery.failures} times"
            elif not self._kept.add(delivery):
                delay_s, error = None, f"{error}, not tried again: {TOO_MUCH_KEPT}"
        if delay_s is None:
            self._report(launch, RunEvent.LAUNCH_FAILED, error)
        elif self._is_current(delivery):
            _log.info("launch of %r: %s; retrying in %.1f s", launch.run.identity, error, delay_s)
            self._spawn(delivery, self._retry(delivery, delay_s))

    async def _result_of(self, launch: Launch) -> DeliveryResult | None:
        """Send the request once and return its result; None if the lease lapsed before it was sent."""
        try:
            with self._clock.working():
                return await self._deliver_one(launch)
        except StartWithheldError:
            return None
        except InputError as error:
            return DeliveryResult(str(error))
        except Exception as error:  # noqa: BLE001 - every error is reported to the engine
            _log.exception("the launch of %r failed unexpectedly", launch.run.identity)
            return DeliveryResult(f"the launch failed unexpectedly: {type(error).__name__}")

    def _drop(self, delivery: _Delivery) -> None:
        """Forget a launch that another worker owns now; that one reports it."""
        if self._is_current(delivery):
            del self._deliveries[delivery.launch.run.key, delivery.launch.run.attempt]
            self._kept.remove(delivery)
        if not self._deliveries:
            self._is_empty.set()

    async def _retry(self, delivery: _Delivery, seconds: float) -> None:
        """Sleep without taking a slot, and queue the delivery again."""
        await sleep_for(self._clock, max(seconds, self.delay_before(delivery.launch)))
        delivery.task = None
        self._queue.put(delivery, delivery.share)
        self._admit()

    def _report(
        self, launch: Launch, event: RunEvent, error: str | None = None, run_id: str | None = None
    ) -> None:
        """Report the outcome of a launch, once."""
        delivery = self._deliveries.pop((launch.run.key, launch.run.attempt), None)
        if delivery is not None:
            self._kept.remove(delivery)
            delivery.sink(report_of(self._clock, launch.run, event, error, run_id))
        if not self._deliveries:
            self._is_empty.set()

    def end(self, run: RunRecord) -> None:
        """Abandon a launch that is not accepted yet; an accepted run cannot be ended from here."""
        delivery = self._deliveries.get((run.key, run.attempt))
        if delivery is not None:
            if delivery.task is not None:
                delivery.task.cancel()
            error = "ended on request during its launch; it may have started"
            self._report(delivery.launch, RunEvent.CANCELLED, error)

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Return the runs that were accepted, and those that are being delivered here."""
        adopted = set()
        for run in (launch.run for launch in runs):
            delivery = self._deliveries.get((run.key, run.attempt))
            if delivery is not None and lease_is_lost(delivery.launch):
                delivery = None  # it will not be sent, or another worker has sent it since
            if delivery is not None:
                delivery.sink = sink
            if delivery is not None or run.acked:
                adopted.add(run.key)
        return frozenset(adopted)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or abandon them unreported: the next owner launches them again.

        Requests that are abandoned get a last chance to be answered, so that fewer are sent twice.
        """
        if not wait:
            await self._await_last_responses()
            self._deliveries.clear()
            self._kept = _KeptText()
            self._queue.clear()
            for task in self._tasks:
                task.cancel()
        while self._deliveries:  # each of them is reported in the end
            self._is_empty.clear()
            await self._is_empty.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _await_last_responses(self) -> None:
        """Send nothing more, and wait for the responses to requests in flight, for a bounded time."""
        self._queue.clear()
        in_flight = []
        for attempt, delivery in list(self._deliveries.items()):
            if delivery.is_sent and delivery.task is not None:
                in_flight.append(delivery.task)
            else:
                self._kept.remove(self._deliveries.pop(attempt))
        if in_flight:
            await asyncio.wait(in_flight, timeout=LAST_RESPONSES_S)
