"""Compiled jobs: definitions as the engine uses them, and the segments of periods still to be planned.

Stored texts are read once: callers write them at any permitted length, and what is read from one may need
twenty times its memory, so that a cache is bounded by the number of short and by the length of long ones.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial, wraps
from typing import Generic, NamedTuple, TypeAlias, TypeVar, TypeVarTuple

from kron.core.cron.count import count_between
from kron.core.cron.dialect import needs_identity
from kron.core.cron.schedule import Schedule
from kron.core.cron.walk import Plan
from kron.core.job.constraint import MAX_SHARED, Constraints
from kron.core.job.decision import decide_at
from kron.core.job.distribution import Distribution
from kron.core.job.job import UNCONSTRAINED, Job
from kron.core.job.policy import Policy
from kron.core.job.seed import SeedStrategy, jitter_of
from kron.core.job.window import Window
from kron.core.plan.record import JobRecord
from kron.core.time.instant import EpochSeconds, rfc3339

# Longer texts are long ones; and how many characters the long ones of one cache have together.
LONG, MAX_LONG = 512, 2 << 20
# The most compiled definitions in the cache; beyond it the least recently used is compiled again, which takes
# some 50 microseconds. One may need 6 KiB, and a caller can define any number of them one after the other.
MAX_COMPILED = 10_000
# The most definitions, and options of definitions, that are kept written; and how many values of unlimited
# number a definition may have to be kept: one of two hundred needs 40 KiB.
MAX_WRITTEN, MAX_OPTIONS, MAX_ENTRIES = 4_096, 512, 20
How = tuple[Window, SeedStrategy, str, Constraints, Policy]
# The identity of jobs that share a compiled definition, because nothing in it depends on the identity.
SHARED_IDENTITY = "*"


Rest = TypeVarTuple("Rest")
Value = TypeVar("Value")
Text = TypeVar("Text", bound="str | None")
Key = TypeVar("Key", bound=Hashable)


class LongTexts(Generic[Value]):
    """Values by text, as many as have `most` characters together; the least recently used are dropped.

    Threads share it without a lock: each step is one operation of a dictionary, and a value that another
    thread has just taken out is made again.
    """

    def __init__(self, most: int = MAX_LONG) -> None:
        self._most = most
        # Each with the length of its text, and the sum of these lengths, which is counted again at each trim:
        # threads may lose a part of it.
        self._values: dict[Hashable, tuple[Value, int]] = {}
        self._held = 0

    def __len__(self) -> int:
        """Return how many values are held."""
        return len(self._values)

    def clear(self) -> None:
        """Forget every value."""
        self._values.clear()
        self._held = 0

    def get(self, key: Hashable, size: int, make: Callable[[], Value]) -> Value:
        """Return the value of a key whose text has a size, made if it is not held."""
        known = self._values.pop(key, None)
        if known is not None:
            # The last one is that which was used last.
            self._values[key] = known
            return known[0]
        value = make()
        self._values[key] = value, size
        self._held += size
        if self._held > self._most:
            self._trim()
        return value

    def _trim(self) -> None:
        """Drop an eighth at least: each trim visits all of them."""
        entries = list(self._values.items())
        held = sum(size for _, (_, size) in entries)
        for key, (_, size) in entries:
            if held <= self._most - self._most // 8:
                break
            if self._values.pop(key, None) is not None:
                held -= size
        self._held = held


def cached_by_text(
    most: int, most_long: int = MAX_LONG
) -> Callable[[Callable[[Text, *Rest], Value]], Callable[[Text, *Rest], Value]]:
    """Return a decorator that caches a function of a text: `most` short texts, and long ones by their length.

    Further arguments belong to the key, and have to be hashable and small.
    """

    def decorated(function: Callable[[Text, *Rest], Value]) -> Callable[[Text, *Rest], Value]:
        short = lru_cache(maxsize=most)(function)
        long = LongTexts[Value](most_long)

        @wraps(function)
        def cached(text: Text, /, *args: *Rest) -> Value:
            # As `cached_by_length`, without a call for the length: each step asks several times.
            if text is None or len(text) <= LONG:
                return short(text, *args)
            return long.get((text, *args), len(text), lambda: function(text, *args))

        # As that of `lru_cache`.
        cached.cache_clear = partial(_clear, short.cache_clear, long.clear)  # type: ignore[attr-defined]
        return cached

    return decorated


def cached_by_length(
    most: int, length: Callable[[Key], int], most_long: int = MAX_LONG
) -> Callable[[Callable[[Key, *Rest], Value]], Callable[[Key, *Rest], Value]]:
    """Return a decorator as `cached_by_text`, of a function of a value whose texts have a length."""

    def decorated(function: Callable[[Key, *Rest], Value]) -> Callable[[Key, *Rest], Value]:
        short = lru_cache(maxsize=most)(function)
        long = LongTexts[Value](most_long)

        @wraps(function)
        def cached(value: Key, /, *args: *Rest) -> Value:
            size = length(value)
            if size <= LONG:
                return short(value, *args)
            return long.get((value, *args), size, lambda: function(value, *args))

        # As that of `lru_cache`.
        cached.cache_clear = partial(_clear, short.cache_clear, long.clear)  # type: ignore[attr-defined]
        return cached

    return decorated


def _clear(*caches: Callable[[], None]) -> None:
    for clear in caches:
        clear()


@dataclass(frozen=True, slots=True)
class CompiledJob:
    """One definition, with the values that every wake needs computed once.

    Periods of a `plain` one start at their nominal times; one that `is_bounded` has a first or a last period.
    """

    job: Job
    plan: Plan
    policy: Policy
    early: int
    late: int
    jitter_ms: int
    deadline_s: float | None
    plain: bool
    is_bounded: bool

    @property
    def is_shared(self) -> bool:
        """Return whether all jobs with this definition have the same times; `H` makes them differ."""
        return self.job.identity == SHARED_IDENTITY

    def for_job(self, identity: str) -> Job:
        """Return the definition as a job with this identity."""
        return self.job if self.job.identity == identity else replace(self.job, identity=identity)

    def chosen_time(self, identity: str, nominal_time: EpochSeconds) -> EpochSeconds | None:
        """Return the chosen time of a period; None if it is unschedulable."""
        return nominal_time if self.plain else decide_at(self.for_job(identity), nominal_time).chosen_time

    def fire_time(self, identity: str, nominal_time: EpochSeconds) -> int | None:
        """Return the fire time of a period, in milliseconds; None if it is unschedulable."""
        if self.plain:
            return 1000 * nominal_time
        chosen = self.chosen_time(identity, nominal_time)
        if chosen is None:
            return None
        return 1000 * chosen + jitter_of(identity, rfc3339(nominal_time), self.jitter_ms)


def compiled_job(definition: str, identity: str) -> CompiledJob:
    """Return a compiled definition; jobs with the same one share it, unless it uses `H`."""
    # As `cached_by_text`, without a call of its own: each step asks several times.
    shared = _shared(definition) if len(definition) <= LONG else _shared_long(definition)
    return shared or _individual(definition, identity)


def definition_of(job: Job) -> str:
    """Return a job's definition as canonical JSON; equal definitions have equal texts.

    It omits the identity, the default values, and `suspend`: pausing does not change the definition.
    """
    schedule = job.schedule
    # Without the identity, so that jobs that differ in nothing else are serialized once.
    when = (schedule.text, schedule.timezone, schedule.dialect, schedule.dst_gap, schedule.dst_repeat)
    how = (job.window, job.seed_strategy, job.salt, job.constraints, job.policy)
    if job.constraints.entries + len(job.salt) > MAX_ENTRIES:
        # Not kept: few jobs share it, and a request may bring a megabyte of it.
        return _text_of.__wrapped__(when, how, job.distribution)
    return _text_of(when, how, job.distribution)


@lru_cache(maxsize=MAX_WRITTEN)
def _text_of(when: tuple[str, str, str, str, str], how: How, distribution: Distribution) -> str:
    names = ("schedule", "timezone", "dialect", "dst_gap", "dst_repeat")
    _, _, salt, constraints, _ = how
    options = _options_of if constraints.entries + len(salt) <= MAX_SHARED else _options_of.__wrapped__
    fields = {**_not_default(dict(zip(names, when, strict=True))), **options(how, distribution)}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=MAX_OPTIONS)
def _options_of(how: How, distribution: Distribution) -> dict[str, object]:
    """Return the fields of a definition beside its schedule, without defaults; many jobs share them."""
    window, strategy, salt, constraints, policy = how
    job = Job(
        identity=SHARED_IDENTITY,
        # As rare as any: a window that its own schedule allows is not too long for this one.
        schedule=Schedule("0 0 1 1 *"),
        window=window,
        distribution=distribution,
        seed_strategy=strategy,
        salt=salt,
        constraints=constraints,
        policy=replace(policy, suspend=False) if policy.suspend else policy,
    )
    fields = job.to_dict()
    del fields["identity"], fields["schedule"]
    return _not_default(fields)


def _not_default(fields: dict[str, object]) -> dict[str, object]:
    defaults = _defaults()
    return {name: value for name, value in fields.items() if value != defaults.get(name)}


@lru_cache(maxsize=1)
def _defaults() -> dict[str, object]:
    """Return the fields of a job that defines nothing but its schedule."""
    defaults = Job.from_dict({"identity": SHARED_IDENTITY, "schedule": "* * * * *"}).to_dict()
    del defaults["schedule"]
    return defaults


@lru_cache(maxsize=MAX_COMPILED)
def _shared(definition: str) -> CompiledJob | None:
    if needs_identity(json.loads(definition)["schedule"]):
        return None
    return _compile(definition, SHARED_IDENTITY)


_shared_long = cached_by_text(MAX_COMPILED)(_shared.__wrapped__)


@cached_by_text(MAX_COMPILED)
def _individual(definition: str, identity: str) -> CompiledJob:
    return _compile(definition, identity)


def _compile(definition: str, identity: str) -> CompiledJob:
    job = Job.from_dict({"identity": identity, **json.loads(definition)})
    early, late = job.window.bounds(0) if job.window.duration else (0, 0)
    jitter = job.policy.jitter_ms
    plain = early == late == jitter == 0 and job.constraints == UNCONSTRAINED
    policy, deadline = job.policy, job.policy.deadline
    return CompiledJob(
        job,
        job.schedule.plan,
        policy,
        early,
        late,
        jitter,
        None if deadline is None else deadline.total_seconds(),
        plain,
        is_bounded=policy.start_at is not None or policy.end_at is not None,
    )


# The most periods examined for the newest missed one that is schedulable.
MAX_UNSCHEDULABLE = 1_000
# Intervals of nominal times, both ends included, in order and apart from each other.
Intervals: TypeAlias = tuple[tuple[EpochSeconds, EpochSeconds], ...]
# The most cached lookups: jobs of one definition need the same ones, one after the other.
MAX_CACHED = 10_000


class Segment(NamedTuple):
    """The unplanned periods of one definition: nominal times in `(after, until]`, or all after `after`.

    Those in `handled` intervals have records from a time when the clock was ahead.
    """

    compiled: CompiledJob
    epoch: int
    edited_at: int
    after: EpochSeconds
    until: EpochSeconds | None
    handled: Intervals = ()

    def next_after(self, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the first nominal time later than an instant."""
        time = _next_after(self.compiled.plan, max(instant, self.after))
        for first, last in self.handled:
            if time is not None and first <= time <= last:
                time = _next_after(self.compiled.plan, last)
        return None if time is None or (self.until is not None and time > self.until) else time

    def last_until(self, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the last nominal time at or before an instant."""
        plan, until, handled = self.compiled.plan, self.until, self.handled
        time = last_at(plan, instant if until is None or instant < until else until)
        if handled:
            for first, last in handled[::-1]:
                if time is not None and first <= time <= last:
                    time = last_at(plan, first - 1)
        return None if time is None or time <= self.after else time

    def count_until(self, instant: EpochSeconds) -> int:
        """Return the number of nominal times up to an instant."""
        plan, start, end = self.compiled.plan, self.after + 1, self._end(instant) + 1
        handled = sum(
            count_between(plan, max(first, start), min(last + 1, end)) for first, last in self.handled
        )
        return count_between(plan, start, end) - handled

    def parts_until(self, instant: EpochSeconds) -> Iterator["Segment"]:
        """Yield the stretches without handled periods up to an instant, each with a nominal time at least."""
        after = self.after
        for first, last in (*self.handled, (self._end(instant) + 1, self._end(instant) + 1)):
            until = min(first - 1, self._end(instant))
            part = self._replace(after=after, until=until, handled=())
            if part.last_until(until) is not None:
                yield part
            after = max(after, last)

    def times_until(self, instant: EpochSeconds) -> Iterator[EpochSeconds]:
        """Yield the nominal times up to an instant, oldest first."""
        time = self.next_after(self.after)
        while time is not None and time <= instant:
            yield time
            time = self.next_after(time)

    def nth_last(self, count: int, instant: EpochSeconds) -> EpochSeconds:
        """Return the n-th last nominal time up to an instant; at least n must exist."""
        time: EpochSeconds | None = instant + 1
        for _ in range(count):
            assert time is not None
            time = self.last_until(time - 1)
        assert time is not None
        return time

    def newest_possible(self, identity: str, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the last schedulable nominal time up to an instant."""
        time = self.last_until(instant)
        for _ in range(MAX_UNSCHEDULABLE):
            if time is None or self.compiled.fire_time(identity, time) is not None:
                return time
            time = self.last_until(time - 1)
        return None

    def _end(self, instant: EpochSeconds) -> EpochSeconds:
        return instant if self.until is None else min(instant, self.until)


@lru_cache(maxsize=MAX_CACHED)
def _next_after(plan: Plan, instant: EpochSeconds) -> EpochSeconds | None:
    return plan.next_after(instant)


@lru_cache(maxsize=MAX_CACHED)
def last_at(plan: Plan, instant: EpochSeconds) -> EpochSeconds | None:
    """Return a plan's last nominal time at or before an instant."""
    return plan.prev_at_or_before(instant)


def segment_of(job: JobRecord) -> Segment:
    """Return the segment of the oldest definition with periods to plan; an edit keeps earlier periods."""
    if job.past is None:
        compiled = compiled_job(job.definition, job.identity)
        if not compiled.is_bounded and job.handled is None:
            # Nearly every job, without another call.
            return Segment(compiled, job.epoch, job.edited_at, job.cursor, None, ())
        return _segment(job, compiled, job.epoch, job.edited_at, None)
    epoch, edited_at, until, definition = json.loads(job.past)[0]
    return _segment(job, compiled_job(definition, job.identity), epoch, edited_at, until)


def first_time(compiled: CompiledJob, cursor: EpochSeconds) -> EpochSeconds | None:
    """Return the first nominal time after the cursor of a job that has had no period yet."""
    after, until = _limits(compiled.policy, cursor, None)
    time = _next_after(compiled.plan, after)
    return None if time is None or (until is not None and time > until) else time


def segments_of(job: JobRecord) -> list[Segment]:
    """Return the segments of all definitions with periods to plan, oldest first."""
    segments = []
    for epoch, edited_at, until, definition in json.loads(job.past or "[]"):
        segments.append(_segment(job, compiled_job(definition, job.identity), epoch, edited_at, until))
        job = job._replace(cursor=max(job.cursor, until))
    present = compiled_job(job.definition, job.identity)
    return [*segments, _segment(job, present, job.epoch, job.edited_at, None)]


def adds_many(job: JobRecord, now: int) -> bool:
    """Say whether a step may plan many periods of a due job at once: windows are open, or jitter is near."""
    if job.next_time is None or job.plan_at is None:
        return False
    is_ahead = job.plan_at < 1000 * job.next_time
    return is_ahead or (job.plan_at <= now - 1000 and not compiled_job(job.definition, job.identity).plain)


def count_near(job: JobRecord, now: int) -> int:
    """Return the number of unplanned periods that may start about now; those missed before are left out."""
    segment = segments_of(job)[-1]
    compiled = segment.compiled
    first = (now - compiled.jitter_ms) // 1000 - compiled.late
    near = segment._replace(after=max(segment.after, first - 1))
    return near.count_until((now + compiled.jitter_ms) // 1000 - compiled.early)


def last_of_definition(job: JobRecord, now: int) -> EpochSeconds | None:
    """Return the last nominal time of a job's current definition up to now; None if it had none yet."""
    compiled = compiled_job(job.definition, job.identity)
    policy = compiled.policy
    end = now // 1000 if policy.end_at is None else min(now // 1000, policy.end_at)
    time = compiled.plan.prev_at_or_before(end)
    since = job.born_at if job.epoch == 1 else job.edited_at
    if time is None or 1000 * time <= since or (policy.start_at is not None and time < policy.start_at):
        return None
    return time


def with_newest(job: JobRecord, until: EpochSeconds) -> str:
    """Return the earlier definitions plus the current one, whose periods end at an edit."""
    earlier = json.loads(job.past) if job.past else []
    return json.dumps([*earlier, [job.epoch, job.edited_at, until, job.definition]])


def end_of_oldest(past: str) -> EpochSeconds:
    """Return the last second of the oldest earlier definition."""
    until: EpochSeconds = json.loads(past)[0][2]
    return until


def without_oldest(past: str | None) -> str | None:
    """Return the earlier definitions without the oldest, which has nothing left to plan."""
    rest = json.loads(past)[1:] if past else []
    return json.dumps(rest) if rest else None


def definitions_of(job: JobRecord) -> dict[int, str]:
    """Return the earlier definitions that still have periods to plan, by epoch."""
    return {epoch: definition for epoch, _, _, definition in json.loads(job.past or "[]")}


def until_at_most(past: str | None, latest: EpochSeconds, cursor: EpochSeconds) -> str | None:
    """Return the earlier definitions with periods up to an instant at most, without those up to a cursor."""
    earlier = [
        [epoch, edited_at, min(until, latest), definition]
        for epoch, edited_at, until, definition in json.loads(past or "[]")
    ]
    rest = [each for each in earlier if each[2] > cursor]
    return json.dumps(rest) if rest else None


def _segment(
    job: JobRecord, compiled: CompiledJob, epoch: int, edited_at: int, until: EpochSeconds | None
) -> Segment:
    after = job.cursor
    if compiled.is_bounded:
        after, until = _limits(compiled.policy, after, until)
    handled = () if job.handled is None else handled_of(job.handled)
    return Segment(compiled, epoch, edited_at, after, until, handled)


def _limits(
    policy: Policy, after: EpochSeconds, until: EpochSeconds | None
) -> tuple[EpochSeconds, EpochSeconds | None]:
    """Return an interval `(after, until]` of nominal times, without those outside the policy's."""
    if policy.start_at is not None:
        after = max(after, policy.start_at - 1)
    if policy.end_at is not None:
        until = policy.end_at if until is None else min(until, policy.end_at)
    return after, until


@cached_by_text(MAX_COMPILED)
def handled_of(text: str | None) -> Intervals:
    """Return the handled intervals of a job's record."""
    return () if text is None else tuple((first, last) for first, last in json.loads(text))


def handled_text(intervals: Iterable[tuple[EpochSeconds, EpochSeconds]]) -> str | None:
    """Return handled intervals as a job's record stores them; None if there are none."""
    listed = list(intervals)
    return json.dumps(listed, separators=(",", ":")) if listed else None


def handled_one_by_one(job: JobRecord) -> str | None:
    """Return the handled intervals as single times, which hold for every definition.

    Beyond a bound the store's unique periods prevent a second start.
    """
    if job.handled is None:
        return None
    plan, times = compiled_job(job.definition, job.identity).plan, list[EpochSeconds]()
    for first, last in handled_of(job.handled):
        time = _next_after(plan, first - 1)
        while time is not None and time <= last and len(times) < MAX_CACHED:
            times.append(time)
            time = _next_after(plan, time)
    return handled_text((time, time) for time in times)


def handled_after(text: str | None, cursor: EpochSeconds) -> str | None:
    """Return the handled intervals that end after a cursor."""
    return None if text is None else handled_text(part for part in handled_of(text) if part[1] > cursor)
