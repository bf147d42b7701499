"""The real plan and the real store, driven by hand: one job, wake by wake, with checks no test may break."""

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from kron.core.job.job import Job
from kron.core.job.outcome import Outcome
from kron.core.plan.compiled import compiled_job
from kron.core.plan.lifecycle import TRANSITIONS
from kron.core.plan.pace import Pace
from kron.core.plan.pause import pause, resume
from kron.core.plan.plan import plan
from kron.core.plan.record import AttemptRecord, JobRecord, RangeRecord, RunKind, RunRecord, RunStatus, key_of
from kron.core.plan.registration import create, delete, edit, request_run
from kron.core.plan.report import RunEvent, RunReport, Traits
from kron.core.plan.step import Change, JobState, Snapshot
from kron.runtime.lease import take_overs
from kron.stores.sqlite.store import SqliteStore
from tests.engine_model import periods_of

SPACE = "runner:world"
# No test gives a job more to do at one instant than this many wakes can.
MAX_WAKES = 60
CALLS = {"callback": Traits()}
T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as those of the store in memory."""
    try:
        work.send(None)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    raise AssertionError("the coroutine waits")


class World:
    """A job, its store, its owner, and the executions in progress."""

    def __init__(self, job: Job, now: int, *, traits: dict[str, Traits] | None = None) -> None:
        self.store = SqliteStore()
        self.now = now
        self.traits = CALLS if traits is None else traits
        self.identity = job.identity
        self.launched: set[tuple[str, int]] = set()
        self.running: dict[str, RunRecord] = {}
        self.asked_to_end: list[str] = []
        self.starts: list[tuple[int, int, int]] = []
        self.wakes = 0
        self.wake_at: int | None = None
        self.pace = Pace()
        self.requests = 0
        self._outcomes: dict[str, Outcome] = {}
        self.ownership = at_once(self.store.acquire(SPACE, "world"))
        self.taken_over_at = now
        created = create(job, now=now)
        at_once(self.store.put(SPACE, created=[created], changed=[], now=now))

    # --- time and executions ----------------------------------------------------------------------

    @property
    def case(self) -> JobState:
        """Return the job's record and its open runs."""
        (case,) = at_once(self.store.cases(SPACE, [self.identity]))
        return case

    @property
    def job(self) -> JobRecord:
        """Return the job's record."""
        return self.case.job

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with every wake that is due."""
        until = self.now + milliseconds
        for _ in range(10_000):
            if self.wake_at is None or self.wake_at > until:
                self.now = until
                return
            self.now = max(self.now, self.wake_at)
            self.wake()
        raise AssertionError("it wakes without end")

    def oversleep(self, milliseconds: int) -> None:
        """Let time pass without a wake, as a busy machine does, and wake then."""
        self.now += milliseconds
        self.wake()

    def wake(self, *reports: RunReport, launch: bool = True) -> None:
        """Load, plan, settle and start until no more is due now."""
        for _ in range(MAX_WAKES):
            self.wakes += 1
            named = list({report.identity for report in reports})
            loaded = at_once(self.store.load(self.ownership, until=self.now, limit=100, named=named))
            cases = [case._replace(reports=reports) if reports else case for case in loaded.cases]
            owner = (self.taken_over_at, self.ownership.token, self.traits)
            snapshot = Snapshot(cases, *owner, loaded.next_at, pace=self.pace)
            changes, self.wake_at = plan(snapshot, self.now)
            assert plan(snapshot, self.now) == (changes, self.wake_at), "plan is a function"
            for case, change in zip(cases, changes, strict=True):
                check_change(case, change)
                self._count(change)
            settled = at_once(self.store.settle(self.ownership, changes, now=self.now))
            assert not settled.stale_jobs
            if launch:
                self.carry_out(changes, settled.existing_runs)
            reports = ()
            if self.wake_at is None or self.wake_at > self.now:
                break
        else:
            raise AssertionError("it is never idle")
        self._check_rest()

    def _count(self, change: Change) -> None:
        """Count catch-up, as the engine does."""
        self.pace = self.pace.after(self.now, starts=change.caught_up, waits=change.waiting)

    def carry_out(self, changes: list[Change], handled: frozenset[str]) -> None:
        """Start and cancel the executions the changes name."""
        for change in changes:
            self.asked_to_end += [run.key for run in change.ends]
            for run in change.starts:
                if run.key in handled:
                    continue
                attempt = (run.key, run.attempt)
                assert attempt not in self.launched, "one attempt, one start"
                self.launched.add(attempt)
                self.running[run.key] = run
                self.starts.append((self.now, run.nominal_time, run.attempt))

    def end(self, key: str, happened: RunEvent = RunEvent.SUCCESS) -> None:
        """Let an execution end, and wake."""
        run = self.running.pop(key)
        self.wake(RunReport(run.identity, key, run.attempt, happened, self.now))

    def end_period(self, nominal_time: int, happened: RunEvent = RunEvent.SUCCESS) -> None:
        """Let the execution of a period end."""
        self.end(key_of(self.identity, nominal_time), happened)

    def crash(self) -> None:
        """Lose every execution and the owner with them; nothing is written."""
        self.running.clear()
        self.wake_at = None
        self.store.drop_locks()

    def take_over(self) -> None:
        """Become the owner; runs in flight are orphans."""
        self.ownership = at_once(self.store.acquire(SPACE, "world"))
        self.taken_over_at = self.now
        incidents = take_overs(self.ownership, frozenset(self.ownership.shards), self.now)
        at_once(self.store.note_incidents(self.ownership, incidents))
        left = at_once(self.store.in_flight(self.ownership))
        self.wake(*(RunReport(r.identity, r.key, r.attempt, RunEvent.ORPHANED, self.now) for r in left))

    def take_over_and_die(self) -> None:
        """Become the owner, record what is due, and die before anything is launched."""
        self.ownership = at_once(self.store.acquire(SPACE, "world"))
        self.taken_over_at = self.now
        self.wake(launch=False)
        self.crash()

    def outage(self, milliseconds: int) -> None:
        """Crash, stay down, and take over."""
        self.crash()
        self.now += milliseconds
        self.take_over()

    # --- registrations -----------------------------------------------------------------------------

    def _put(self, change: Change) -> None:
        settled = at_once(self.store.put(SPACE, created=[], changed=[change], now=self.now))
        assert not settled.stale_jobs
        assert not settled.existing_runs
        self.wake()

    def pause(self) -> None:
        """Pause the job."""
        case = self.case
        self._put(pause(case.job, list(case.runs), because="by hand", now=self.now))

    def resume(self) -> None:
        """Resume the job."""
        case = self.case
        self._put(resume(case.job, list(case.runs), now=self.now))

    def edit(self, job: Job) -> None:
        """Give the job a new definition; a deleted one is created again."""
        case = self.case
        self._put(edit(case.job, list(case.runs), job, now=self.now))

    def delete(self) -> None:
        """Delete the job."""
        case = self.case
        self._put(delete(case.job, list(case.runs), now=self.now))

    def ask(self) -> None:
        """Request a manual run."""
        self.requests += 1
        self._put(request_run(self.job, request=f"wish {self.requests}", now=self.now))

    # --- records ----------------------------------------------------------------------------------

    def rows(self, kind: RunKind = RunKind.PERIOD) -> dict[int, RunRecord]:
        """Return the rows by nominal time."""
        runs = at_once(self.store.runs(SPACE, self.identity, limit=1_000_000))
        return {run.nominal_time: run for run in runs if run.kind is kind}

    def ranges(self) -> list[RangeRecord]:
        """Return the counted records, oldest first."""
        return at_once(self.store.ranges(SPACE, self.identity))[::-1]

    def attempts(self, nominal_time: int) -> list[AttemptRecord]:
        """Return the earlier attempts of a period."""
        return at_once(self.store.attempts(SPACE, key_of(self.identity, nominal_time)))

    def records(self) -> dict[int, tuple[str, str]]:
        """Return status and reason of every period, those of ranges one by one."""
        found = {nominal: (str(run.status), str(run.reason)) for nominal, run in self.rows().items()}
        epochs = {epoch.epoch: epoch.definition for epoch in at_once(self.store.epochs(SPACE, self.identity))}
        job = self.job
        for shared in self.ranges():
            terms = compiled_job(epochs.get(shared.epoch, job.definition), self.identity)
            listed = list(periods_of(terms.for_job(self.identity), shared.first - 1, shared.last))
            assert (listed[0], listed[-1], len(listed)) == (shared.first, shared.last, shared.periods)
            for nominal in listed:
                assert nominal not in found, "one period, one record"
                found[nominal] = (shared.outcome.upper(), str(shared.reason))
        return found

    def _check_rest(self) -> None:
        """Check that no more is due now, and that the next wake is in time."""
        case = self.case
        times = [case.job.plan_at, *(run.due_at for run in case.runs)]
        pending = [at for at in times if at is not None]
        assert all(at > self.now for at in pending), "something is left to do and nobody does it"
        if pending:
            assert self.wake_at is not None
            assert self.wake_at <= min(pending)
        for run in at_once(self.store.runs(SPACE, self.identity, limit=1_000_000)):
            assert run.is_open or run.due_at is None, "what is over does not come up again"
            before = self._outcomes.get(run.key)
            assert before is None or run.outcome is before, "an outcome is for ever"
            if run.outcome is not None:
                self._outcomes[run.key] = run.outcome


def check_change(case: JobState, change: Change) -> None:
    """Check that statuses follow the table, attempts count up, and each start is recorded in its change."""
    before = {run.key: run for run in case.runs}
    for run in change.updates:
        old = before[run.key]
        assert run.status is old.status or run.status in reachable(old.status)
        assert old.attempt <= run.attempt
    written = {run.key: run for run in (*change.inserts, *change.updates)}
    for run in change.starts:
        assert written[run.key].attempt == run.attempt
        assert written[run.key].token == run.token
        assert written[run.key].in_flight, "what has ended does not start"
    assert len({run.key for run in change.starts}) == len(change.starts)
    assert change.job.cursor >= case.job.cursor
    assert change.job.revision == case.job.revision + 1


def reachable(status: RunStatus) -> set[RunStatus]:
    """Return every status that can follow, in one step or several."""
    found: set[RunStatus] = set()
    edge = {status}
    while edge:
        edge = {after for one in edge for after in TRANSITIONS[one]} - found
        found |= edge
    return found


def with_policy(job: Job, **fields: Any) -> Job:
    """Return a job with parts of its policy replaced."""
    return replace(job, policy=replace(job.policy, **fields))
