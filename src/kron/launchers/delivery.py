"""Executions that run elsewhere: they are handed over, again if no answer came, and left alone then."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from kron.core.errors import InputError, InvalidOptionError
from kron.core.plan.record import RunRecord
from kron.core.plan.report import RunEvent, Traits
from kron.launchers.backoff import Backoff, pause
from kron.launchers.http.request import DeliveryResult
from kron.launchers.lease import is_lost, may_begin
from kron.launchers.report import report_of
from kron.ports import Clock, Launch, ReportSink

_log = logging.getLogger("kron.launchers")

Attempt: TypeAlias = tuple[str, int]
USUAL_BACKOFF = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=30))
# How many requests are under way at once; the others wait in order.
MAX_REQUESTS = 100


def traits_of(*, reports: bool) -> Traits:
    """Return what the engine must know: whoever accepts an execution runs it, later and elsewhere."""
    return Traits(reports=reports, idempotent=True, enqueues=True, remote=True)


@dataclass(slots=True)
class _Handing:
    """A launch that is under way, who hears of it, and how often it failed.

    Its `task` sends a request or waits for the next; while it stands in line it has none.
    """

    launch: Launch
    hear: ReportSink
    failed: int = 0
    task: asyncio.Task[None] | None = None


class RemoteLauncher:
    """Hands executions over with a function that sends each of them and says what was answered.

    The same key is sent again when no answer came, so the other side has to honour it. What becomes of
    an execution is not asked for: with `reports` whoever runs it says so, else nobody waits for it.
    """

    def __init__(
        self,
        clock: Clock,
        send: Callable[[Launch], Awaitable[DeliveryResult]],
        *,
        reports: bool = False,
        backoff: Backoff = USUAL_BACKOFF,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        if max_requests < 1:
            raise InvalidOptionError(option="max_requests", value=max_requests, reason="must be at least 1")
        self.traits = traits_of(reports=reports)
        self._clock = clock
        self._send = send
        self._backoff = backoff
        self._free = max_requests
        self._launches: dict[Attempt, _Handing] = {}
        # Thousands may be started at once; a task is made for those only whose turn it is.
        self._line: deque[_Handing] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Say whether requests are under way, or will be."""
        return bool(self._launches)

    def start(self, launch: Launch, hear: ReportSink) -> None:
        """Hand an execution over as soon as there is room; what an earlier owner began of it is given up."""
        before = self._launches.get((launch.run.key, launch.run.attempt))
        if before is not None and before.task is not None:
            before.task.cancel()
        handing = self._launches[launch.run.key, launch.run.attempt] = _Handing(launch, hear)
        self._line.append(handing)
        self._admit()

    def _admit(self) -> None:
        """Send the next in line while there is room."""
        while self._free and self._line:
            handing = self._line.popleft()
            if self._is_under_way(handing):
                self._free -= 1
                self._begin(handing, self._try(handing)).add_done_callback(self._make_room)

    def _begin(self, handing: _Handing, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = handing.task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _make_room(self, _: asyncio.Task[None]) -> None:
        """Let the next one in; also a task that was cancelled before its first step has left."""
        self._free += 1
        self._admit()

    def _is_under_way(self, handing: _Handing) -> bool:
        run = handing.launch.run
        return self._launches.get((run.key, run.attempt)) is handing

    async def _try(self, handing: _Handing) -> None:
        """Send the request; if it is not answered for good, send it again later, but not for ever."""
        launch = handing.launch
        if not await may_begin(self._clock, launch):
            self._drop(handing)
            return
        answer = await self._answer_to(launch)
        handing.failed += 1
        if answer.error is None:
            self._tell(launch, RunEvent.ACCEPTED, run_id=answer.run_id)
            return
        wait_s = None
        if answer.again:
            wait_s = self._backoff.wait_of(launch.run.key, handing.failed, asked=answer.asked_s)
            if wait_s is None:
                answer = answer._replace(error=f"{answer.error}, tried {handing.failed} times")
        if wait_s is None:
            self._tell(launch, RunEvent.LAUNCH_FAILED, answer.error)
        elif self._is_under_way(handing):
            _log.info("launch of %r: %s; trying again", launch.run.identity, answer.error)
            self._begin(handing, self._come_back(handing, wait_s))

    async def _answer_to(self, launch: Launch) -> DeliveryResult:
        try:
            with self._clock.working():
                return await self._send(launch)
        except InputError as error:
            return DeliveryResult(str(error))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the engine hears of it
            _log.exception("the launch of %r failed unexpectedly", launch.run.identity)
            return DeliveryResult(f"the launch failed unexpectedly: {type(error).__name__}")

    def _drop(self, handing: _Handing) -> None:
        """Forget a launch that is somebody else's by now; they tell of it."""
        if self._is_under_way(handing):
            del self._launches[handing.launch.run.key, handing.launch.run.attempt]
        if not self._launches:
            self._is_empty.set()

    async def _come_back(self, handing: _Handing, seconds: float) -> None:
        """Wait, without taking up room, and stand in line again."""
        await pause(self._clock, seconds)
        handing.task = None
        self._line.append(handing)
        self._admit()

    def _tell(
        self, launch: Launch, happened: RunEvent, error: str | None = None, run_id: str | None = None
    ) -> None:
        """Report what came of a launch, once."""
        found = self._launches.pop((launch.run.key, launch.run.attempt), None)
        if found is not None:
            found.hear(report_of(self._clock, launch.run, happened, error, run_id))
        if not self._launches:
            self._is_empty.set()

    def end(self, run: RunRecord) -> None:
        """Give up a launch that is under way; what was accepted is out of our hands."""
        found = self._launches.get((run.key, run.attempt))
        if found is not None:
            if found.task is not None:
                found.task.cancel()
            self._tell(
                found.launch, RunEvent.CANCELLED, "ended on request while it was launched; it may have begun"
            )

    async def adopt(self, runs: Sequence[Launch], hear: ReportSink) -> frozenset[str]:
        """Find what was accepted, which runs elsewhere, and what is being launched here."""
        found = set()
        for run in (launch.run for launch in runs):
            mine = self._launches.get((run.key, run.attempt))
            if mine is not None and is_lost(mine.launch):
                mine = None  # it is not begun any more, or others have begun it since
            if mine is not None:
                mine.hear = hear
            if mine is not None or run.acked:
                found.add(run.key)
        return frozenset(found)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or break them off unreported: the next owner launches them again."""
        if not wait:
            self._launches.clear()
            self._line.clear()
            for task in self._tasks:
                task.cancel()
        while self._launches:  # each of them is told of in the end
            self._is_empty.clear()
            await self._is_empty.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)
