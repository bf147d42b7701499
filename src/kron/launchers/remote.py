"""Executions that run elsewhere: they are handed over, again if no answer came, and left alone then."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from kron.core.errors import InputError, InvalidOptionError
from kron.core.event import Happened, Traits
from kron.core.record import RunRecord
from kron.launchers.report import report_of
from kron.launchers.request import Answer
from kron.launchers.retry import Backoff, pause
from kron.ports import Clock, Hear, Launch

_log = logging.getLogger("kron.launchers")

Attempt: TypeAlias = tuple[str, int]
USUAL_BACKOFF = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=30))
# How many requests are under way at once; the others wait in order.
MAX_REQUESTS = 100


def traits_of(*, reports: bool) -> Traits:
    """Return what the engine must know: whoever accepts an execution runs it, later and elsewhere."""
    return Traits(reports=reports, idempotent=True, enqueues=True, remote=True)


class RemoteLauncher:
    """Hands executions over with a function that sends each of them and says what was answered.

    The same key is sent again when no answer came, so the other side has to honour it. What becomes of
    an execution is not asked for: with `reports` whoever runs it says so, else nobody waits for it.
    """

    def __init__(
        self,
        clock: Clock,
        send: Callable[[Launch], Awaitable[Answer]],
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
        self._room = asyncio.Semaphore(max_requests)
        self._launches: dict[Attempt, tuple[asyncio.Task[None], Launch, Hear]] = {}

    @property
    def busy(self) -> bool:
        """Say whether requests are under way, or will be."""
        return bool(self._launches)

    def start(self, launch: Launch, hear: Hear) -> None:
        """Hand an execution over in a task of its own."""
        task = asyncio.create_task(self._launch(launch), name=f"kron {launch.job.identity}")
        self._launches[launch.run.key, launch.run.attempt] = task, launch, hear

    async def _launch(self, launch: Launch) -> None:
        try:
            answer = await self._deliver(launch)
        except InputError as error:
            answer = Answer(str(error))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the engine hears of it
            _log.exception("the launch of %r failed unexpectedly", launch.run.identity)
            answer = Answer(f"the launch failed unexpectedly: {type(error).__name__}")
        if answer.error is None:
            self._tell(launch, Happened.ACCEPTED, run_id=answer.run_id)
        else:
            self._tell(launch, Happened.LAUNCH_FAILED, answer.error)

    async def _deliver(self, launch: Launch) -> Answer:
        """Send the request until it is answered for good, or often enough."""
        failed = 0
        while True:  # `wait_of` bounds it
            async with self._room:
                with self._clock.working():
                    answer = await self._send(launch)
            failed += 1
            if answer.error is None or not answer.again:
                return answer
            wait_s = self._backoff.wait_of(launch.run.key, failed, asked=answer.asked_s)
            if wait_s is None:
                return answer._replace(error=f"{answer.error}, tried {failed} times")
            _log.info("launch of %r: %s; trying again", launch.run.identity, answer.error)
            await pause(self._clock, wait_s)

    def _tell(
        self, launch: Launch, happened: Happened, error: str | None = None, run_id: str | None = None
    ) -> None:
        """Report what came of a launch, once."""
        found = self._launches.pop((launch.run.key, launch.run.attempt), None)
        if found is not None:
            found[2](report_of(self._clock, launch.run, happened, error, run_id))

    def end(self, run: RunRecord) -> None:
        """Give up a launch that is under way; what was accepted is out of our hands."""
        found = self._launches.get((run.key, run.attempt))
        if found is not None:
            found[0].cancel()
            self._tell(
                found[1], Happened.CANCELLED, "ended on request while it was launched; it may have begun"
            )

    async def adopt(self, runs: Sequence[Launch], hear: Hear) -> frozenset[str]:
        """Find what was accepted, which runs elsewhere, and what is being launched here."""
        found = set()
        for run in (launch.run for launch in runs):
            mine = self._launches.get((run.key, run.attempt))
            if mine is not None:
                self._launches[run.key, run.attempt] = mine[0], mine[1], hear
            if mine is not None or run.acked:
                found.add(run.key)
        return frozenset(found)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or break them off unreported: the next owner launches them again."""
        tasks = [task for task, _, _ in self._launches.values()]
        if not wait:
            self._launches.clear()
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)
