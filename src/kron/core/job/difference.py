"""Differences: which starts move, appear, vanish or collide between two versions of a fleet."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kron.core.job.decision import starts_between
from kron.core.job.job import Job
from kron.core.time.instant import DAY, EpochSeconds

MINUTE = 60
# Two periods of one local day lie less than this apart, in whichever two zones the day is counted.
SAME_DAY = 3 * DAY


class ChangeKind(StrEnum):
    """How a job differs."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    RENAMED = "renamed"


class ShiftKind(StrEnum):
    """How a start differs."""

    MOVES = "moves"
    APPEARS = "appears"
    VANISHES = "vanishes"


class FieldChange(NamedTuple):
    """A field of a job and its two values; None where it is absent."""

    path: str
    old: object
    new: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One start that changes from `old_at` to `new_at`, either None where there is none."""

    identity: str
    old_at: EpochSeconds | None
    new_at: EpochSeconds | None

    @property
    def kind(self) -> ShiftKind:
        """Return whether the start moves, appears or vanishes."""
        if self.old_at is None:
            return ShiftKind.APPEARS
        return ShiftKind.VANISHES if self.new_at is None else ShiftKind.MOVES

    @property
    def seconds(self) -> int | None:
        """Return by how much it moves: later is positive."""
        return None if self.old_at is None or self.new_at is None else self.new_at - self.old_at

    @property
    def at(self) -> EpochSeconds:
        """Return its place in a list: where the start was or, if there was none, where it is now."""
        at = self.new_at if self.old_at is None else self.old_at
        assert at is not None
        return at


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """The changes of one job and its starts; `stay` counts the unchanged starts.

    `unschedulable` counts the vanished starts whose period remains without a time to choose.
    """

    kind: ChangeKind
    old: Job | None
    new: Job | None
    fields: tuple[FieldChange, ...]
    shifts: tuple[Shift, ...]
    stay: int
    unschedulable: int

    @property
    def identity(self) -> str:
        """Return the job's name, the new one if it has two."""
        job = self.new or self.old
        assert job is not None
        return job.identity


class Collision(NamedTuple):
    """A minute with more starts than before, and more than one: the jobs in it, and which are new there."""

    minute_at: EpochSeconds
    before: int
    identities: tuple[str, ...]
    newcomers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between two versions of a fleet in an interval."""

    changes: tuple[JobChange, ...]
    unchanged: int
    collisions: tuple[Collision, ...]

    @property
    def shifts(self) -> list[Shift]:
        """Return the shifts of all jobs, in order of time."""
        shifts = [shift for change in self.changes for shift in change.shifts]
        return sorted(shifts, key=lambda shift: (shift.at, shift.identity))


def _no_check() -> None:
    """Let every computation end."""


def difference_of(
    old: Sequence[Job],
    new: Sequence[Job],
    start: EpochSeconds,
    end: EpochSeconds,
    *,
    edited_at: EpochSeconds | None = None,
    check: Callable[[], None] = _no_check,
) -> Difference:
    """Return the difference in `[start, end)`.

    With `edited_at` the new version comes into force then: periods up to it, and any that has started, keep
    their decisions. Without, it is as if each version had always been in force.

    Jobs are paired by identity or, if that changed, by equal definitions. Of a pair, periods with the same
    nominal time are compared; the rest is paired day by day, in order, on days with as many on both sides, so
    that a job set from 02:00 to 03:00 moves. `check` is called for every period, and ends a
    long computation by raising.
    """
    scope = _Scope(start, end, edited_at, check)
    pairs = list(_pairs(old, new))
    changes = [_change_of(one, other, scope) for one, other in pairs if _differ(one, other)]
    return Difference(
        changes=tuple(changes),
        unchanged=len(pairs) - len(changes),
        collisions=tuple(_collisions(changes, new, scope)),
    )


class _Scope(NamedTuple):
    """What is compared: the starts of `[start, end)`, and when the new version comes into force."""

    start: EpochSeconds
    end: EpochSeconds
    edited_at: EpochSeconds | None
    check: Callable[[], None]


# --- jobs ---


def _pairs(old: Sequence[Job], new: Sequence[Job]) -> Iterator[tuple[Job | None, Job | None]]:
    """Yield every job with its other version: those of the new list in its order, then those removed."""
    known = {job.identity: job for job in old}
    kept = {job.identity for job in new}
    removed = [job for job in old if job.identity not in kept]
    added = [job for job in new if job.identity not in known]
    renamed = _renamed(removed, added)
    for job in new:
        yield known.get(job.identity) or renamed.get(job.identity), job
    gone = {job.identity for job in renamed.values()}
    for job in removed:
        if job.identity not in gone:
            yield job, None


def _renamed(removed: Sequence[Job], added: Sequence[Job]) -> dict[str, Job]:
    """Return the removed job of each new identity; equal jobs are paired only if their numbers match."""
    went, came = _alike(removed), _alike(added)
    return {
        other.identity: one
        for likeness, jobs in went.items()
        if len(jobs) == len(came[likeness])
        for one, other in zip(jobs, came[likeness], strict=True)
    }


def _alike(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    groups: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        groups[repr({**job.to_dict(), "identity": None})].append(job)
    return groups


def _differ(one: Job | None, other: Job | None) -> bool:
    return one is None or other is None or one.to_dict() != other.to_dict()


def _change_of(old: Job | None, new: Job | None, scope: _Scope) -> JobChange:
    shifts, stay, unschedulable = _shifts(old, new, scope)
    return JobChange(
        kind=_kind_of(old, new),
        old=old,
        new=new,
        fields=() if old is None or new is None else tuple(changed_fields(old, new)),
        shifts=tuple(shifts),
        stay=stay,
        unschedulable=unschedulable,
    )


def _kind_of(old: Job | None, new: Job | None) -> ChangeKind:
    if old is None:
        return ChangeKind.ADDED
    if new is None:
        return ChangeKind.REMOVED
    return ChangeKind.CHANGED if old.identity == new.identity else ChangeKind.RENAMED


def changed_fields(old: Job, new: Job) -> Iterator[FieldChange]:
    """Yield the fields that differ between two versions of a job."""
    before, after = dict(_leaves(old.to_dict())), dict(_leaves(new.to_dict()))
    for path in before | after:
        if before.get(path) != after.get(path):
            yield FieldChange(path, before.get(path), after.get(path))


def _leaves(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, inner


# --- starts ---


def _shifts(old: Job | None, new: Job | None, scope: _Scope) -> tuple[list[Shift], int, int]:
    """Return the shifts, how many starts stay, and how many vanish as unschedulable."""
    margin = SAME_DAY + _width(old) + _width(new)
    wide = scope._replace(start=scope.start - margin, end=scope.end + margin)
    before, after = _starts(old, wide), _starts_after(old, new, wide)
    barren = {nominal_time for nominal_time, chosen_time in after.items() if chosen_time is None}
    job = new or old
    assert job is not None
    shifts, stay, unschedulable = [], 0, 0
    for nominal_time, old_at, new_at in _paired(old, new, before, after):
        if old_at == new_at:
            stay += old_at is not None and scope.start <= old_at < scope.end
        elif shift := _shift_of(job.identity, old_at, new_at, scope):
            shifts.append(shift)
            unschedulable += shift.kind is ShiftKind.VANISHES and nominal_time in barren
    shifts.sort(key=lambda shift: shift.at)
    return shifts, stay, unschedulable


def _shift_of(
    identity: str, old_at: EpochSeconds | None, new_at: EpochSeconds | None, scope: _Scope
) -> Shift | None:
    """Return the shift, or None outside the interval; earlier starts are past."""
    old_at = None if old_at is None or old_at < scope.start else old_at
    new_at = None if new_at is None or new_at < scope.start else new_at
    seen = [at for at in (old_at, new_at) if at is not None and at < scope.end]
    return Shift(identity=identity, old_at=old_at, new_at=new_at) if seen else None


def _width(job: Job | None) -> int:
    if job is None:
        return 0
    early, late = job.window.bounds(0)
    return late - early


def _starts(job: Job | None, scope: _Scope) -> dict[EpochSeconds, EpochSeconds | None]:
    """Return the chosen times by their nominal times, in order."""
    starts: dict[EpochSeconds, EpochSeconds | None] = {}
    if job is not None and not job.policy.suspend:
        for nominal_time, chosen_time in starts_between(job, scope.start, scope.end):
            scope.check()
            starts[nominal_time] = chosen_time
    return starts


def _starts_after(old: Job | None, new: Job | None, scope: _Scope) -> dict[EpochSeconds, EpochSeconds | None]:
    """Return the chosen times of a job when its new version is in force."""
    starts = _starts(new, scope)
    if scope.edited_at is None:
        return starts
    is_edited = old is not None and new is not None and old.identity == new.identity
    kept_until = _kept_until(old, scope, scope.edited_at) if is_edited else scope.edited_at
    later = {time: at for time, at in starts.items() if time > kept_until}
    # Nothing of a job that is suspended or removed starts, and one that is created has no earlier periods.
    is_kept = is_edited and new is not None and not new.policy.suspend
    kept = {time: at for time, at in _starts(old, scope).items() if time <= kept_until} if is_kept else {}
    return kept | later


def _kept_until(old: Job | None, scope: _Scope, edited_at: EpochSeconds) -> EpochSeconds:
    """Return the last period that keeps its decision: one up to the edit, or a later one that has started."""
    begun = scope._replace(start=edited_at - _width(old), end=edited_at + 1)
    return max([edited_at, *(time for time, at in _starts(old, begun).items() if at is not None)])


def _paired(
    old: Job | None,
    new: Job | None,
    before: Mapping[EpochSeconds, EpochSeconds | None],
    after: Mapping[EpochSeconds, EpochSeconds | None],
) -> Iterator[tuple[EpochSeconds, EpochSeconds | None, EpochSeconds | None]]:
    """Yield every period's nominal time (the old one if it has two) with its two chosen times."""
    for nominal_time in before.keys() & after.keys():
        yield nominal_time, before[nominal_time], after[nominal_time]
    went = _by_day(old, [nominal_time for nominal_time in before if nominal_time not in after])
    came = _by_day(new, [nominal_time for nominal_time in after if nominal_time not in before])
    for day in went | came:
        if len(went[day]) == len(came[day]):
            for one, other in zip(went[day], came[day], strict=True):
                yield one, before[one], after[other]
        else:
            yield from ((one, before[one], None) for one in went[day])
            yield from ((other, None, after[other]) for other in came[day])


def _by_day(job: Job | None, nominal_times: Sequence[EpochSeconds]) -> defaultdict[int, list[EpochSeconds]]:
    """Return nominal times by the day of the job's zone they lie on."""
    days: defaultdict[int, list[EpochSeconds]] = defaultdict(list)
    for nominal_time in nominal_times:
        assert job is not None
        days[(nominal_time + job.schedule.plan.zone.span_at(nominal_time).offset) // DAY].append(nominal_time)
    return days


# --- collisions ---


def _collisions(changes: Sequence[JobChange], jobs: Sequence[Job], scope: _Scope) -> list[Collision]:
    """Return the minutes with more than one start that had fewer before, the fullest first."""
    gain: Counter[int] = Counter()
    came: defaultdict[int, set[str]] = defaultdict(set)
    for change in changes:
        for shift in change.shifts:
            left, reached = (_minutes(at, scope) for at in (shift.old_at, shift.new_at))
            gain.subtract(left)
            gain.update(reached)
            for minute in set(reached) - set(left):
                came[minute].add(shift.identity)
    inside: dict[int, list[str]] = {minute: [] for minute, more in gain.items() if more > 0}
    changed = {change.new.identity: change.old for change in changes if change.new is not None}
    for job in jobs if inside else ():
        name = job.identity
        starts = _starts_after(changed[name], job, scope) if name in changed else _starts(job, scope)
        for chosen_time in starts.values():
            if chosen_time is not None and chosen_time // MINUTE in inside:
                inside[chosen_time // MINUTE].append(name)
    collisions = [
        Collision(
            minute * MINUTE, len(names) - gain[minute], tuple(sorted(names)), tuple(sorted(came[minute]))
        )
        for minute, names in inside.items()
        if len(names) > 1
    ]
    return sorted(collisions, key=lambda collision: (-len(collision.identities), collision.minute_at))


def _minutes(at: EpochSeconds | None, scope: _Scope) -> list[int]:
    return [] if at is None or not scope.start <= at < scope.end else [at // MINUTE]
