"""A model of the policies, period by period: slow, plain, and independent of the engine.

Of Kron it uses only `Schedule` and `decide`. It lists every period, never counts, and keeps everything
in one dictionary, so that the engine's arithmetic can be compared with an enumeration.
Times are milliseconds, nominal times seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256

from kron.core.job.decision import decide
from kron.core.job.job import Job
from kron.core.job.policy import Catchup, OnOrphan, Overlap

MINUTE_MS = 60_000
MS = timedelta(milliseconds=1)
IN_FLIGHT = ("ENQUEUED", "STARTED")


def jitter_by_hand(identity: str, nominal_time: int, jitter_ms: int) -> int:
    """Return the offset of jitter, written out: SHA-256, one step of SplitMix64, 53 bits."""
    if jitter_ms == 0:
        return 0
    period_id = datetime.fromtimestamp(nominal_time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    digest = sha256(f"{identity}\n{period_id}\njitter".encode()).digest()
    state = (int.from_bytes(digest[:8], "big") + 0x9E3779B97F4A7C15) % 2**64
    mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % 2**64
    u = ((mixed ^ (mixed >> 31)) >> 11) / 2**53
    return min(int(u * (2 * jitter_ms + 1)), 2 * jitter_ms) - jitter_ms


@lru_cache(maxsize=10_000)
def fire_time_of(job: Job, nominal_time: int) -> int | None:
    """Return the fire time of a period, or None if it has none."""
    chosen = decide(job, datetime.fromtimestamp(nominal_time, UTC)).chosen_time
    if chosen is None:
        return None
    return 1000 * chosen + jitter_by_hand(job.identity, nominal_time, job.policy.jitter_ms)


def periods_of(job: Job, after: int, until: int) -> Iterator[int]:
    """Yield the nominal times in `(after, until]` that start_at and end_at allow, one by one."""
    policy = job.policy
    first = after + 1 if policy.start_at is None else max(after + 1, policy.start_at)
    last = until if policy.end_at is None else min(until, policy.end_at)
    if first <= last:
        start, end = (datetime.fromtimestamp(second, UTC) for second in (first, last + 1))
        for instant in job.schedule.between(start, end):
            yield int(instant.timestamp())


def _awake(job: Job) -> Job:
    """Return a definition without its suspend, which the model keeps as a flag."""
    return replace(job, policy=replace(job.policy, suspend=False))


@dataclass
class Entry:
    """One period, or one manual run."""

    nominal: int
    fire: int
    job: Job
    status: str = "PENDING"
    reason: str = "planned"
    attempt: int = 0
    timeout_at: int | None = None
    grace_until: int | None = None
    ended_at: int = 0
    retry_at: int | None = None
    waits: bool = False
    manual: bool = False

    @property
    def in_flight(self) -> bool:
        """Return whether it is running."""
        return self.status in IN_FLIGHT

    @property
    def key(self) -> tuple[int, bool]:
        """Return its unique key."""
        return self.nominal, self.manual


@dataclass
class Edition:
    """A definition, and the nominal times `(after, until]` it applies to."""

    job: Job
    after: int
    until: int | None
    edited_at: int | None


def _last_near(edition: Edition, now: int) -> int:
    """Return the latest nominal time of a definition that may be planned now."""
    early = -edition.job.window.bounds(0).start
    last = (now + edition.job.policy.jitter_ms) // 1000 + early
    return last if edition.until is None else min(last, edition.until)


@dataclass
class Model:
    """One job with the outcomes of its periods."""

    job: Job
    born_at: int
    taken_over_at: int
    editions: list[Edition] = field(default_factory=list)
    entries: dict[int, Entry] = field(default_factory=dict)
    asked: list[Entry] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    resumed_at: int = 0
    paused: bool = False
    suspended: bool = False
    deleted: bool = False
    failures: int = 0
    remaining: int | None = None

    def __post_init__(self) -> None:
        self.suspended, self.job = self.job.policy.suspend, _awake(self.job)
        early = self.born_at // 1000 - 1_000
        self.editions.append(Edition(self.job, early, None, None))
        self.remaining = self.job.policy.remaining

    # --- registrations ----------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Return whether a person or the definition stops the job."""
        return self.paused or self.suspended

    def pause(self) -> None:
        """Let a person stop the job."""
        self.paused = True
        self._hold()

    def _hold(self) -> None:
        """Stop planning periods; the grace period restarts when the job is resumed."""
        for entry in self.entries.values():
            entry.grace_until = None

    def resume(self, now: int) -> None:
        """Plan periods again, unless the definition suspends the job; those of the pause were missed."""
        if self.paused:
            self.paused, self.failures = False, 0
            self.resumed_at = self.resumed_at if self.stopped else now

    def edit(self, job: Job, now: int) -> bool:
        """Edit the definition and its suspend; return whether either changed."""
        changed, was_stopped = self._redefine(_awake(job), now), self.stopped
        suspended, self.suspended = self.suspended, job.policy.suspend
        if self.stopped and not was_stopped:
            self._hold()
        elif was_stopped and not self.stopped:
            self.resumed_at = now
        return changed or suspended != self.suspended

    def _redefine(self, job: Job, now: int) -> bool:
        """Open an epoch: periods up to now keep their definition, later ones get the new one."""
        if job == self.job and not self.deleted:
            return False
        second = now // 1000
        if self.deleted or self.remaining == 0:
            self.editions = []
        for edition in self.editions:
            edition.until = second if edition.until is None else edition.until
        self.editions = [edition for edition in self.editions if self._has_periods(edition)]
        self.editions.append(Edition(job, second, None, now))
        if job.policy.remaining != self.job.policy.remaining:
            self.remaining = job.policy.remaining
        self.job, self.deleted = job, False
        for entry in self.entries.values():
            if entry.status == "PENDING" and entry.nominal > second:
                self._redecide(entry, now)
        return True

    def _has_periods(self, edition: Edition) -> bool:
        assert edition.until is not None
        listed = periods_of(edition.job, edition.after, edition.until)
        return any(nominal not in self.entries and nominal not in self.silent for nominal in listed)

    def _redecide(self, entry: Entry, now: int) -> None:
        listed = entry.nominal in periods_of(self.job, entry.nominal - 1, entry.nominal)
        fire = fire_time_of(self.job, entry.nominal) if listed else None
        if fire == entry.fire:
            entry.job = self.job
        elif fire is None or fire <= now:
            entry.status, entry.reason = "CANCELLED", "edited"
        else:
            entry.fire, entry.job = fire, self.job

    def delete(self) -> None:
        """Start no more periods, cancel waiting ones, and let active runs end."""
        self.deleted = True
        for entry in self._all():
            entry.retry_at = None
            if entry.status == "PENDING":
                entry.status, entry.reason = "CANCELLED", "deleted"

    def ask(self, now: int) -> None:
        """Request a manual run."""
        self.asked.append(Entry(now // 1000, now, self.job, reason="asked", manual=True))

    # --- executions --------------------------------------------------------------------------------

    def end(self, entry: Entry, result: str, now: int) -> None:
        """Record the end of an execution: success, failed, cancelled, orphaned or lost."""
        entry.timeout_at, entry.ended_at, entry.waits = None, now, False
        if result == "success":
            entry.status, self.failures = "SUCCESS", 0
        elif result == "cancelled" or entry.reason == "replaced":
            entry.status = "CANCELLED"
        else:
            entry.status = "FAILED"
            self._after_failure(entry, result)

    def _after_failure(self, entry: Entry, result: str) -> None:
        policy = self.job.policy
        self.failures += 1
        if policy.pause_after_failures is not None and self.failures >= policy.pause_after_failures:
            self.pause()
        if self.deleted:
            return
        if result == "orphaned":
            if policy.on_orphan is OnOrphan.RESTART:
                entry.reason, entry.retry_at = "restarted", entry.ended_at
        elif policy.retry_delay is not None and not entry.manual:
            entry.reason = "retry"
            entry.retry_at = entry.ended_at + -(-policy.retry_delay // MS)

    # --- a wake -----------------------------------------------------------------------------------

    def wake(self, now: int, *, called: bool = False) -> None:
        """Run one wake; periods that wait for an end are judged at the next event."""
        if not called and not self._has_work(now):
            return
        for entry in self._all():
            if entry.in_flight and entry.timeout_at is not None and entry.timeout_at <= now:
                self.end(entry, "lost", now)
        if self.stopped and not self.deleted:
            self._start_asked(now)
        if self.stopped or self.deleted:
            return
        more = False
        while self.editions:
            edition = self.editions[0]
            more = self._take(edition, now)
            if edition.until is None:
                break
            self.editions.pop(0)
        while more:
            more = self._judge(now)
        self._start_retries(now)

    def _take(self, edition: Edition, now: int) -> bool:
        """Judge the periods of one definition; return whether another wake at the same instant is needed."""
        missed, due = self._listed(edition, now)
        self._judge_missed(missed, now)
        if missed and edition.job.policy.catchup in (Catchup.ALL, Catchup.SPREAD):
            # Replayed periods go first; due ones follow in the next wake.
            more = self._judge(now)
            if self._is_over(edition, missed[-1].nominal):
                return more
        if self.remaining != 0:
            self.entries |= {entry.nominal: entry for entry in due}
            # All of these have an entry now, and no later wake has to list them again.
            edition.after = max(edition.after, _last_near(edition, now))
        return self._judge(now)

    def _is_over(self, edition: Edition, last: int) -> bool:
        """Return whether an earlier definition has no period after a nominal time."""
        if edition.until is None:
            return False
        return self.remaining == 0 or not any(periods_of(edition.job, last, edition.until))

    def _has_work(self, now: int) -> bool:
        if any(e.in_flight and e.timeout_at is not None and e.timeout_at <= now for e in self._all()):
            return True
        if self.deleted:
            return False
        if self.stopped:
            return any(entry.status == "PENDING" for entry in self.asked)
        first, *later = self.editions
        missed, due = self._listed(first, now, look=True)
        return bool(
            later
            or missed
            or due
            or any(e.status == "PENDING" and e.fire <= now and not e.waits for e in self._all())
            or any(e.retry_at is not None and e.retry_at <= now and not e.waits for e in self._all())
            or any(
                e.status == "PENDING" and e.grace_until is not None and e.grace_until <= now
                for e in self._all()
            )
        )

    def _all(self) -> list[Entry]:
        return [*self.entries.values(), *self.asked]

    @property
    def line(self) -> int:
        """Return the fire time before which a period was missed while the job had no owner."""
        return max(self.taken_over_at - MINUTE_MS, self.resumed_at)

    def _listed(self, edition: Edition, now: int, *, look: bool = False) -> tuple[list[Entry], list[Entry]]:
        """Return the periods that come up for the first time: those missed, and those that are due or near.

        With `look`, only see what there is.
        """
        job, last = edition.job, _last_near(edition, now)
        planned = [e for e in self.entries.values() if e.status == "PENDING" and e.reason == "planned"]
        missed, due = [e for e in planned if e.fire < self.line], []
        for nominal in periods_of(job, edition.after, last) if self.remaining != 0 else ():
            if nominal in self.entries or nominal in self.silent:
                continue
            fire = fire_time_of(job, nominal)
            assert fire is not None, "the model knows no constraints"
            entry = Entry(nominal, fire, job)
            if look:
                due.append(entry)
            elif fire < self.born_at:
                self.silent.add(nominal)
            elif edition.edited_at is not None and fire <= edition.edited_at:
                entry.status, entry.reason = "CANCELLED", "edited"
                self.entries[nominal] = entry
            elif fire < self.line:
                missed.append(entry)
            else:
                due.append(entry)
        return missed, due

    def _judge_missed(self, missed: list[Entry], now: int) -> None:
        """Let each definition judge its own periods."""
        missed.sort(key=lambda entry: entry.nominal)
        own: dict[int, list[Entry]] = {}
        for entry in missed:
            self.entries[entry.nominal] = entry
            own.setdefault(id(entry.job), []).append(entry)
        for group in own.values():
            for later, entry in enumerate(reversed(group)):
                self._judge_one_missed(entry, later, len(group), now)

    def _judge_one_missed(self, entry: Entry, later: int, count: int, now: int) -> None:
        """Judge one of the `count` missed periods of a definition, of which some are later."""
        policy = entry.job.policy
        if policy.catchup is Catchup.NONE:
            entry.status, entry.reason = "MISSED", "catchup_none"
        elif policy.catchup is Catchup.ONCE and later:
            entry.status, entry.reason = "MISSED", "superseded"
        elif policy.catchup is not Catchup.ONCE and later >= policy.max_catchup:
            entry.status, entry.reason = "MISSED", "catchup_limit"
        elif policy.catchup is Catchup.SPREAD:
            run = min(count, policy.max_catchup)
            entry.fire = now + (run - later) * MINUTE_MS // (run + 1)
            entry.reason = "spread"
        else:
            entry.reason = "caught_up"

    def _judge(self, now: int) -> bool:
        """Judge the due periods; return whether another wake at the same instant is needed."""
        self._start_asked(now)
        line = self._in_time(now)
        if line:
            for entry in self._all():
                if entry.retry_at is not None:
                    entry.reason, entry.retry_at = "retry_preempted", None
        return self._overlap(line, now)

    def _start_asked(self, now: int) -> None:
        """Start manual runs, whatever stops the job."""
        for entry in self.asked:
            if entry.status == "PENDING":
                self._start(entry, now)

    def _start_retries(self, now: int) -> None:
        for entry in sorted(self._all(), key=lambda e: (e.fire, e.nominal)):
            if entry.retry_at is not None and entry.retry_at <= now:
                entry.waits = self.job.policy.overlap is not Overlap.ALLOW and bool(self._active())
                if not entry.waits:
                    self._start(entry, now)

    def _in_time(self, now: int) -> list[Entry]:
        """Return the due periods, in order; those past their deadline end here."""
        line = []
        waiting = [e for e in self.entries.values() if e.status == "PENDING" and e.fire <= now]
        for entry in sorted(waiting, key=lambda e: (e.fire, e.nominal)):
            deadline = entry.job.policy.deadline
            late = timedelta(seconds=now // 1000 - entry.fire // 1000)
            exempt = entry.reason in ("spread", "replacing")
            if deadline is not None and late > deadline and not exempt:
                entry.status, entry.reason = "MISSED", "deadline"
            else:
                line.append(entry)
        return line

    def _active(self) -> list[Entry]:
        return [entry for entry in self._all() if entry.in_flight]

    def _overlap(self, line: list[Entry], now: int) -> bool:
        overlap, waiting = self.job.policy.overlap, 0
        if overlap is Overlap.BUFFER_ONE:
            for entry in line[:-1]:
                entry.status, entry.reason = "SKIPPED", "coalesced"
            line = line[-1:]
        if overlap is Overlap.REPLACE:
            return self._replace(line, now)
        for entry in line:
            if overlap is Overlap.ALLOW or not self._active():
                self._start(entry, now)
            elif overlap is Overlap.SKIP:
                entry.status, entry.reason = "SKIPPED", "active"
            elif overlap is Overlap.QUEUE and waiting >= self.job.policy.queue_max:
                entry.status, entry.reason = "SKIPPED", "queue_full"
            else:
                waiting, entry.grace_until, entry.waits = waiting + 1, None, True
                # A period that is spread stays exempt from the deadline while it waits.
                entry.reason = entry.reason if entry.reason == "spread" else "queued"
        return False

    def _replace(self, line: list[Entry], now: int) -> bool:
        """Cancel the active run, or start the first in the queue; return whether the next step is due now."""
        if not line:
            return False
        first, *rest = line
        for entry in rest:
            entry.reason, entry.waits = "replacing", True
        grace_over = first.grace_until is not None and first.grace_until <= now
        if not self._active() or grace_over:
            self._start(first, now)
            return bool(rest)
        for entry in self._active():
            entry.reason = "replaced"
        first.reason, first.waits = "replacing", True
        if first.grace_until is None:
            first.grace_until = now + self.job.policy.replace_grace // MS
        return first.grace_until <= now

    def _start(self, entry: Entry, now: int) -> None:
        if entry.attempt == 0 and not entry.manual and self.remaining is not None:
            if self.remaining == 0:
                entry.status, entry.reason = "SKIPPED", "finished"
                return
            self.remaining -= 1
        if entry.retry_at is None and entry.reason not in ("caught_up", "spread", "asked"):
            entry.reason = "due"
        entry.status, entry.attempt, entry.retry_at, entry.waits = "STARTED", entry.attempt + 1, None, False
        timeout = self.job.policy.run_timeout
        entry.timeout_at = None if timeout is None else now + timeout // MS
