"""Plan and store against the model: in whatever order things happen, no period is lost or started twice."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.policy import Catchup, OnOrphan, Overlap, Policy
from kron.core.job.window import Window, WindowMode
from kron.core.plan.record import RunKind, RunRecord
from kron.core.plan.report import RunEvent
from tests.engine_model import Entry, Model
from tests.engine_world import World
from tests.strategies import law

# Sunday, 29 March 2026, 00:58:47.123 UTC: two minutes before the clocks go forward in Berlin.
START = 1_774_745_927_123
SCHEDULES = [
    Schedule("* * * * *"),
    Schedule("*/20 * * * * *"),
    Schedule("*/5 * * * *"),
    Schedule("*/7 0-2 * * *", "Europe/Berlin"),
]
NAPS = [0, 1, 400, 877, 1_000, 10_000, 20_000, 59_999, 60_000, 61_000, 180_000, 420_000]
SECONDS = st.sampled_from([0.0, 0.0004, 1.0, 30.0, 90.0]).map(lambda seconds: timedelta(seconds=seconds))
NO_WINDOW = Window()
WINDOWS = [
    Window(WindowMode.AFTER, timedelta(seconds=90)),
    Window(WindowMode.BEFORE, timedelta(seconds=90)),
    Window(WindowMode.AROUND, timedelta(seconds=50)),
]


def policies(catchups: list[Catchup], overlaps: list[Overlap], jitter_ms: int) -> st.SearchStrategy[Policy]:
    limited = len(overlaps) > 1
    return st.builds(
        Policy,
        overlap=st.sampled_from(overlaps),
        catchup=st.sampled_from(catchups),
        deadline=st.none() | SECONDS,
        on_orphan=st.sampled_from(OnOrphan),
        jitter_ms=st.just(jitter_ms),
        retry_delay=st.none() | SECONDS,
        run_timeout=st.sampled_from([None, timedelta(seconds=200)]),
        replace_grace=st.sampled_from([timedelta(0), timedelta(seconds=10)]),
        queue_max=st.integers(1, 3),
        max_catchup=st.integers(1, 5),
        start_at=st.sampled_from([None, None, START // 1000 + 100]),
        end_at=st.sampled_from([None, None, None, START // 1000 + 900]),
        remaining=st.sampled_from([None, None, 1, 3] if limited else [None]),
        pause_after_failures=st.sampled_from([None, None, 2]),
    )


PLAIN = policies(list(Catchup), list(Overlap), 0).map(lambda policy: (NO_WINDOW, policy))
# Where fire times are not in the order of nominal times, a replay may start either first.
WINDOWED = st.tuples(
    st.sampled_from([*WINDOWS, NO_WINDOW]),
    policies([Catchup.NONE, Catchup.ONCE], list(Overlap), 7_000)
    | policies([Catchup.NONE, Catchup.ONCE], list(Overlap), 0)
    | policies([Catchup.ALL], [Overlap.ALLOW], 7_000),
)
TERMS = PLAIN | WINDOWED


def job_of(schedule: Schedule, terms: tuple[Window, Policy], *, suspend: bool = False) -> Job:
    window, policy = terms
    return Job(
        identity="world/job", schedule=schedule, window=window, policy=replace(policy, suspend=suspend)
    )


def looks_ahead(job: Job) -> bool:
    """Say whether a period may have a record before its nominal time has come."""
    return job.window.bounds(0).start < 0 or job.policy.jitter_ms > 0


class EngineMachine(RuleBasedStateMachine):
    """One job, one owner at a time, and everything that can happen to them."""

    world: World
    model: Model

    @initialize(schedule=st.sampled_from(SCHEDULES), terms=TERMS, suspended=st.booleans())
    def begin(self, schedule: Schedule, terms: tuple[Window, Policy], suspended: bool) -> None:
        self.definition = job_of(schedule, terms, suspend=suspended and schedule is SCHEDULES[0])
        self.world = World(self.definition, START)
        self.model = Model(self.definition, born_at=START, taken_over_at=START)
        self.both_wake()

    def both_wake(self) -> None:
        self.world.wake()
        self.model.wake(self.world.now)

    def entry_of(self, run: RunRecord) -> Entry:
        if run.kind is RunKind.PERIOD:
            return self.model.entries[run.nominal_time]
        number = sorted(self.world.rows(RunKind.MANUAL)).index(run.nominal_time)
        return sorted(self.model.asked, key=lambda entry: entry.nominal)[number]

    # --- time -------------------------------------------------------------------------------------

    @rule(nap=st.sampled_from(NAPS))
    def sleep_and_wake_in_time(self, nap: int) -> None:
        until = self.world.now + nap
        for _ in range(200):
            if self.world.wake_at is None or self.world.wake_at > until:
                break
            self.world.now = max(self.world.now, self.world.wake_at)
            self.both_wake()
        self.world.now = until
        self.both_wake()

    @rule(nap=st.sampled_from(NAPS))
    def oversleep(self, nap: int) -> None:
        self.world.now += nap
        self.both_wake()

    @rule(jump=st.sampled_from([61_000, 200_000, 3_600_000]))
    def the_clock_is_set_forward(self, jump: int) -> None:
        self.world.now += jump
        self.world.taken_over_at = self.model.taken_over_at = self.world.now
        self.both_wake()

    # --- executions -------------------------------------------------------------------------------

    @precondition(lambda self: self.world.running)
    @rule(which=st.integers(0, 99), well=st.booleans())
    def an_execution_ends(self, which: int, well: bool) -> None:
        keys = sorted(self.world.running)
        run = self.world.running[keys[which % len(keys)]]
        entry = self.entry_of(run)
        if entry.in_flight and entry.attempt == run.attempt:
            self.model.end(entry, "success" if well else "failed", self.world.now)
        self.world.end(run.key, RunEvent.SUCCESS if well else RunEvent.FAILED)
        self.model.wake(self.world.now, called=True)

    @precondition(lambda self: self.asked_to_end())
    @rule(which=st.integers(0, 99))
    def an_execution_asked_to_end_ends(self, which: int) -> None:
        keys = self.asked_to_end()
        run = self.world.running[keys[which % len(keys)]]
        entry = self.entry_of(run)
        if entry.in_flight and entry.attempt == run.attempt:
            self.model.end(entry, "cancelled", self.world.now)
        self.world.end(run.key, RunEvent.CANCELLED)
        self.model.wake(self.world.now, called=True)

    def asked_to_end(self) -> list[str]:
        return sorted(set(self.world.asked_to_end) & set(self.world.running))

    # --- owners -----------------------------------------------------------------------------------

    @rule(
        nap=st.sampled_from(NAPS),
        away=st.sampled_from(NAPS),
        step=st.sampled_from(["load", "settle", "start"]),
    )
    def crash_and_take_over(self, nap: int, away: int, step: str) -> None:
        """Die before anything is written, after that but before the starts, or after them."""
        self.world.now += nap
        if step != "load":
            self.world.wake(launch=step == "start")
            self.model.wake(self.world.now)
        self.world.crash()
        self.world.now += away
        self.model.taken_over_at = self.world.now
        left = [e for e in (*self.model.entries.values(), *self.model.asked) if e.in_flight]
        for entry in left:
            self.model.end(entry, "orphaned", self.world.now)
        self.world.take_over()
        self.model.wake(self.world.now, called=bool(left))

    # --- people -----------------------------------------------------------------------------------

    @rule()
    def pause(self) -> None:
        self.world.pause()
        self.model.pause()

    @precondition(lambda self: self.model.paused)
    @rule()
    def resume(self) -> None:
        self.world.resume()
        self.model.resume(self.world.now)
        self.model.wake(self.world.now, called=True)

    @precondition(lambda self: not looks_ahead(self.definition))
    @rule(schedule=st.sampled_from(SCHEDULES), terms=PLAIN, suspend=st.sampled_from([False, False, True]))
    def edit(self, schedule: Schedule, terms: tuple[Window, Policy], suspend: bool) -> None:
        self.definition = job_of(schedule, terms, suspend=suspend)
        self.world.edit(self.definition)
        changed = self.model.edit(self.definition, self.world.now)
        self.model.wake(self.world.now, called=changed)

    @precondition(lambda self: not self.model.deleted or not looks_ahead(self.definition))
    @rule()
    def suspend_or_lift_it(self) -> None:
        policy = replace(self.definition.policy, suspend=not self.model.suspended)
        self.definition = replace(self.definition, policy=policy)
        self.world.edit(self.definition)
        changed = self.model.edit(self.definition, self.world.now)
        self.model.wake(self.world.now, called=changed)

    @rule()
    def delete(self) -> None:
        self.world.delete()
        self.model.delete()

    @precondition(lambda self: not looks_ahead(self.definition))
    @rule()
    def edit_nothing_or_create_again(self) -> None:
        self.world.edit(self.definition)
        changed = self.model.edit(self.definition, self.world.now)
        self.model.wake(self.world.now, called=changed)

    @precondition(lambda self: not self.model.deleted)
    @rule()
    def ask_for_a_run(self) -> None:
        self.world.now += 1_000
        self.both_wake()
        self.world.ask()
        self.model.ask(self.world.now)
        self.model.wake(self.world.now)

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def every_period_is_as_the_model_says(self) -> None:
        expected = {entry.nominal: (entry.status, entry.reason) for entry in self.model.entries.values()}
        # What was due before the job was made has no record, or a share in one with what was missed later.
        found = {
            nominal: record
            for nominal, record in self.world.records().items()
            if nominal not in self.model.silent or record[0] != "MISSED"
        }
        different = {
            nominal: (found.get(nominal), expected.get(nominal))
            for nominal in sorted(found.keys() | expected.keys())
            if found.get(nominal) != expected.get(nominal)
        }
        assert not different, f"{different} at {self.world.now}"

    @invariant()
    def attempts_and_fire_times_agree(self) -> None:
        for nominal, run in self.world.rows().items():
            if nominal in self.model.silent:
                continue
            entry = self.model.entries[nominal]
            assert (run.attempt, run.fire_time) == (entry.attempt, entry.fire), f"{run} but {entry}"
        asked = [(str(run.status), run.attempt) for _, run in sorted(self.world.rows(RunKind.MANUAL).items())]
        expected = [(entry.status, entry.attempt) for entry in self.model.asked]
        assert asked == expected, f"{asked} instead of {expected}"

    @invariant()
    def the_job_is_as_the_model_says(self) -> None:
        job = self.world.job
        found = (bool(job.paused), bool(job.suspended), job.remaining, job.failures)
        expected = (self.model.paused, self.model.suspended, self.model.remaining, self.model.failures)
        assert found == expected, f"{found} instead of {expected}"


TestEngineMachine = EngineMachine.TestCase
# At least twenty histories in the fast tier too.
TestEngineMachine.settings = settings(max_examples=max(20, law(100).max_examples))
