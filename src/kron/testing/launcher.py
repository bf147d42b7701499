"""A launcher that does what a test says, and remembers what it was asked to do."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from kron.core.plan.record import RunRecord
from kron.core.plan.report import RunEvent, Traits
from kron.launchers.report import report_of
from kron.ports import Clock, Launch, ReportSink


class Step(StrEnum):
    """What happens to one start: HANG runs until told to end; LOSE runs, but nobody is told of it."""

    SUCCEED = "succeed"
    FAIL = "fail"
    HANG = "hang"
    REFUSE = "refuse"
    LOSE = "lose"


class Started(NamedTuple):
    """One start as it was asked for."""

    identity: str
    key: str
    attempt: int
    token: int
    nominal_time: int


class ScriptedLauncher:
    """Follows a script: for each identity what happens to its starts, one after the other.

    After the last step of its script a job succeeds. The launcher stands for the world outside: share it
    between an owner that is killed and the next one. `effects` counts executions by key, the way an executor
    does that honours the key where the traits say so. What hangs can be adopted if `survives`.
    """

    def __init__(
        self,
        clock: Clock,
        script: Mapping[str, Iterable[Step]] | None = None,
        *,
        traits: Traits | None = None,
        survives: bool = False,
    ) -> None:
        self.traits = Traits() if traits is None else traits
        self.started: list[Started] = []
        self.asked_to_end: list[RunRecord] = []
        self.effects: Counter[str] = Counter()
        self._clock = clock
        self._survives = survives
        self._script = {identity: deque(steps) for identity, steps in (script or {}).items()}
        self._running: dict[tuple[str, int], tuple[Launch, ReportSink]] = {}
        self._lost: set[tuple[str, int]] = set()
        self._rest = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Say whether something hangs or is about to end; what was lost nobody waits for."""
        return any(attempt not in self._lost for attempt in self._running)

    @property
    def running(self) -> list[RunRecord]:
        """Return the executions under way, oldest first."""
        return [launch.run for launch, _ in self._running.values()]

    def then(self, identity: str, *steps: Step) -> None:
        """Add to a job's script."""
        self._script.setdefault(identity, deque()).extend(steps)

    def start(self, launch: Launch, hear: ReportSink) -> None:
        """Take the next step of the job's script."""
        run = launch.run
        attempt = (run.key, run.attempt)
        self.started.append(Started(run.identity, run.key, run.attempt, run.token, run.nominal_time))
        steps = self._script.get(run.identity)
        step = steps.popleft() if steps else Step.SUCCEED
        known = self.traits.idempotent and self.effects[run.key] > 0
        if step is not Step.REFUSE and not known:
            self.effects[run.key] += 1
        self._running[attempt] = launch, hear
        match step:
            case Step.REFUSE:
                self._soon(attempt, RunEvent.LAUNCH_FAILED, "refused by the script")
            case Step.LOSE:
                self._lost.add(attempt)
            case Step.HANG:
                self._accept(launch, hear)
            case Step.FAIL:
                self._accept(launch, hear)
                self._soon(attempt, RunEvent.FAILED, "failed by the script")
            case Step.SUCCEED:
                self._accept(launch, hear)
                self._soon(attempt, RunEvent.SUCCESS)

    def _accept(self, launch: Launch, hear: ReportSink) -> None:
        hear(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=f"scripted {len(self.started)}"))

    def _soon(self, attempt: tuple[str, int], happened: RunEvent, error: str | None = None) -> None:
        """Report an end in the next turn of the event loop, as a quick execution would."""
        if happened in (RunEvent.SUCCESS, RunEvent.FAILED) and not self.traits.reports:
            del self._running[attempt]
            self._note_rest()
            return
        asyncio.get_running_loop().call_soon(self._tell, attempt, happened, error)

    def _tell(self, attempt: tuple[str, int], happened: RunEvent, error: str | None = None) -> None:
        """Report an end, once."""
        found = self._running.pop(attempt, None)
        self._lost.discard(attempt)
        if found is not None:
            launch, hear = found
            hear(report_of(self._clock, launch.run, happened, error))
        self._note_rest()

    def finish(self, run: RunRecord, happened: RunEvent = RunEvent.SUCCESS, error: str | None = None) -> None:
        """End an execution that hangs or whose answer was lost."""
        assert (run.key, run.attempt) in self._running, "it is not under way"
        self._tell((run.key, run.attempt), happened, error)

    def end(self, run: RunRecord) -> None:
        """Remember the request; what hangs is cancelled, what was lost does not hear it."""
        self.asked_to_end.append(run)
        attempt = (run.key, run.attempt)
        if attempt in self._running and attempt not in self._lost:
            self._soon(attempt, RunEvent.CANCELLED)

    async def adopt(self, runs: Sequence[Launch], hear: ReportSink) -> frozenset[str]:
        """Find what still hangs, or was lost, if executions survive their owner."""
        found = set()
        for launch in runs:
            attempt = (launch.run.key, launch.run.attempt)
            if attempt not in self._running:
                continue
            if not self._survives:
                del self._running[attempt]
                self._lost.discard(attempt)
                continue
            self._running[attempt] = launch, hear
            self._lost.discard(attempt)
            found.add(launch.run.key)
        self._note_rest()
        return frozenset(found)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for what hangs, or leave it."""
        while wait and self.busy:
            self._rest.clear()
            await self._rest.wait()

    def _note_rest(self) -> None:
        if not self.busy:
            self._rest.set()
