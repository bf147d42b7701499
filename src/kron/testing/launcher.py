"""A launcher that follows a test's script and records the requests it receives."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent, Traits
from kron.launchers.launch import report_of
from kron.ports import Clock, ReportSink


class Step(StrEnum):
    """The fate of one start: HANG runs until it is ended; LOSE runs, but its reports are lost."""

    SUCCEED = "succeed"
    FAIL = "fail"
    HANG = "hang"
    REFUSE = "refuse"
    LOSE = "lose"


class Started(NamedTuple):
    """One requested start."""

    identity: str
    key: str
    attempt: int
    token: int
    nominal_time: int


class ScriptedLauncher:
    """Follows a script: for each identity the fate of its starts, in order.

    After the last step of its script a job succeeds. The launcher represents the outside world: share it
    between an owner that is killed and the next one. `effects` counts executions by key, as an executor
    does that deduplicates by key if the traits say so. Hanging runs can be adopted if `survives`.
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
        self._idle = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Return whether a run hangs or is about to end; lost runs do not count."""
        return any(attempt not in self._lost for attempt in self._running)

    @property
    def running(self) -> list[RunRecord]:
        """Return the running executions, oldest first."""
        return [launch.run for launch, _ in self._running.values()]

    def then(self, identity: str, *steps: Step) -> None:
        """Add to a job's script."""
        self._script.setdefault(identity, deque()).extend(steps)

    def start(self, launch: Launch, report: ReportSink) -> None:
        """Take the next step of the job's script."""
        run = launch.run
        attempt = (run.key, run.attempt)
        self.started.append(Started(run.identity, run.key, run.attempt, run.token, run.nominal_time))
        steps = self._script.get(run.identity)
        step = steps.popleft() if steps else Step.SUCCEED
        known = self.traits.idempotent and self.effects[run.key] > 0
        if step is not Step.REFUSE and not known:
            self.effects[run.key] += 1
        self._running[attempt] = launch, report
        match step:
            case Step.REFUSE:
                self._soon(attempt, RunEvent.LAUNCH_FAILED, "refused by the script")
            case Step.LOSE:
                self._lost.add(attempt)
            case Step.HANG:
                self._accept(launch, report)
            case Step.FAIL:
                self._accept(launch, report)
                self._soon(attempt, RunEvent.FAILED, "failed by the script")
            case Step.SUCCEED:
                self._accept(launch, report)
                self._soon(attempt, RunEvent.SUCCESS)

    def _accept(self, launch: Launch, report: ReportSink) -> None:
        report(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=f"scripted {len(self.started)}"))

    def _soon(self, attempt: tuple[str, int], event: RunEvent, error: str | None = None) -> None:
        """Report an end in the next iteration of the event loop, as a quick execution would."""
        if event in (RunEvent.SUCCESS, RunEvent.FAILED) and not self.traits.reports:
            del self._running[attempt]
            self._note_idle()
            return
        asyncio.get_running_loop().call_soon(self._report, attempt, event, error)

    def _report(self, attempt: tuple[str, int], event: RunEvent, error: str | None = None) -> None:
        """Report an end, once."""
        running = self._running.pop(attempt, None)
        self._lost.discard(attempt)
        if running is not None:
            launch, report = running
            report(report_of(self._clock, launch.run, event, error))
        self._note_idle()

    def finish(self, run: RunRecord, event: RunEvent = RunEvent.SUCCESS, error: str | None = None) -> None:
        """End an execution that hangs or whose reports were lost."""
        assert (run.key, run.attempt) in self._running, "it is not running"
        self._report((run.key, run.attempt), event, error)

    def end(self, run: RunRecord) -> None:
        """Record the request; a hanging run is cancelled, a lost one does not receive it."""
        self.asked_to_end.append(run)
        attempt = (run.key, run.attempt)
        if attempt in self._running and attempt not in self._lost:
            self._soon(attempt, RunEvent.CANCELLED)

    async def adopt(self, runs: Sequence[Launch], report: ReportSink) -> frozenset[str]:
        """Adopt the runs that hang or were lost, if executions survive their owner."""
        adopted = set()
        for launch in runs:
            attempt = (launch.run.key, launch.run.attempt)
            if attempt not in self._running:
                continue
            if not self._survives:
                del self._running[attempt]
                self._lost.discard(attempt)
                continue
            self._running[attempt] = launch, report
            self._lost.discard(attempt)
            adopted.add(launch.run.key)
        self._note_idle()
        return frozenset(adopted)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for hanging runs, or leave them."""
        while wait and self.busy:
            self._idle.clear()
            await self._idle.wait()

    def _note_idle(self) -> None:
        if not self.busy:
            self._idle.set()
