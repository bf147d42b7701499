"""Start groups: the schedules of a fleet that start together, however many there are.

Schedules with one definition start at the same times, so these are computed once. Those whose times depend on
their names (`H`, windows) are read one by one as long as they are few enough, as are those in a state of
their own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kron.app.budget import CpuBudget
from kron.app.query import Query
from kron.core.job.profile import profile_fields_of
from kron.core.plan.compiled import cached_by_text, compiled_job
from kron.core.plan.plan import UNUSABLE
from kron.core.plan.query import JobFilter, JobGroup
from kron.core.plan.record import JobRecord
from kron.core.plan.step import JobState
from kron.fronts.service.web.timeline import NOTHING, ComingStarts, View, coming_of, total_of

# Groups that are read, schedules that are read one by one for their names, and for their states.
MAX_GROUPS, MAX_SINGLY, MAX_IRREGULAR = 20_000, 10_000, 500
# Schedules of full minutes that are read by name.
MAX_MEMBERS = 2_000
# Schedules with windows that are decided; of more, the starts count at their nominal times.
MAX_DECIDED = 2_000
# Processor time to read the definitions of a fleet, for the coming starts of one picture, and for the
# decisions of windows, in seconds.
READ_S, STARTS_S, WINDOWS_S = 0.25, 0.3, 0.15
# Profiles whose tags are remembered.
MAX_PROFILES = 4_096


class StartGroup(NamedTuple):
    """Schedules that start at the same times: their definition, how many they are, and the first name.

    `state` is that of a schedule that is not told by its definition.
    """

    definition: str
    name: str
    jobs: int = 1
    tag: str | None = None
    state: JobState | None = None

    def state_at(self, now: int) -> JobState:
        """Return a state from which the starts after an instant follow."""
        if self.state is not None:
            return self.state
        late = compiled_job(self.definition, self.name).late
        return JobState(
            JobRecord(self.name, self.definition, "{}", "", 1, 0, 0, 1, now // 1000 - late - 1, None, None)
        )


class StartGroups(NamedTuple):
    """The start groups of a fleet, its schedules by first tag, and how many schedules are left out."""

    groups: Sequence[StartGroup]
    tags: Mapping[str | None, int]
    left_out: int = 0

    @property
    def total(self) -> int:
        """Return how many schedules there are."""
        return sum(self.tags.values())


async def start_groups_of(query: Query, wanted: JobFilter) -> StartGroups:
    """Read the start groups of the schedules that match a filter."""
    groups = await query.groups(wanted, limit=MAX_GROUPS)
    tags: Counter[str | None] = Counter()
    for group in groups:
        tags[group.tag] += group.jobs
    shared, singles, left_out = await query.compute(lambda: _parted(groups))
    together = [StartGroup(group.definition, group.name, group.jobs, group.tag) for group in shared]
    if len(groups) == MAX_GROUPS:
        unread = max(0, await query.count(wanted) - tags.total())
        left_out += unread
        tags[None] += unread
    if singles:
        theirs = wanted._replace(definitions=sorted({group.definition for group in singles}), irregular=False)
        found = await query.groups(theirs, limit=MAX_SINGLY, singly=True)
        started = [group for group in found if not group.is_stopped]
        together += [StartGroup(group.definition, group.name, 1, group.tag) for group in started]
        left_out += max(0, sum(group.jobs for group in singles) - len(started))
    irregular = sum(group.jobs for group in groups if group.is_irregular)
    if irregular:
        read = await _irregular(query, wanted)
        together += read
        left_out += max(0, irregular - len(read))
    return StartGroups(together, tags, left_out)


class _Parts(NamedTuple):
    """Groups that start together, those whose schedules are read one by one, and how many are left out."""

    together: list[JobGroup]
    singles: list[JobGroup]
    left_out: int


def _parted(groups: Iterable[JobGroup]) -> _Parts:
    """Part groups by how their schedules start, the largest first and while the budget lasts."""
    together, hashed = list[JobGroup](), list[JobGroup]()
    windowed, alone = list[JobGroup](), list[JobGroup]()
    left_out, budget = 0, CpuBudget(READ_S)
    for group in groups:
        if group.is_stopped or group.is_irregular:
            continue
        if not group.definition or budget.is_spent:
            left_out += group.jobs
            continue
        try:
            compiled = compiled_job(group.definition, group.name)
        except UNUSABLE:
            continue
        if not compiled.is_shared:
            hashed.append(group)
        elif compiled.plain:
            together.append(group)
        else:
            (alone if group.jobs == 1 else windowed).append(group)
    if sum(group.jobs for group in windowed) > MAX_DECIDED:
        return _Parts(together + windowed + alone, hashed, left_out)
    # Schedules are read one by one by their definition, whatever their tag.
    read = {group.definition for group in windowed}
    together += [group for group in alone if group.definition not in read]
    singles = hashed + windowed + [group for group in alone if group.definition in read]
    return _Parts(together, singles, left_out)


async def _irregular(query: Query, wanted: JobFilter) -> list[StartGroup]:
    found, _ = await query.job_page(wanted._replace(irregular=True), after="", limit=MAX_IRREGULAR)
    states = await query.states([each.job.identity for each in found])
    return [
        StartGroup(
            each.job.definition,
            each.job.identity,
            1,
            next(iter(tags_of(each.job.profile)), None),
            states.get(each.job.identity, JobState(each.job)),
        )
        for each in found
    ]


@cached_by_text(MAX_PROFILES)
def tags_of(profile: str | None) -> tuple[str, ...]:
    """Return the tags of a schedule."""
    tags = profile_fields_of(profile)["tags"]
    return tuple(map(str, tags)) if isinstance(tags, (list, tuple)) else ()


class FleetStarts(NamedTuple):
    """The coming starts of some groups, in their order; None beyond the budget of processor time."""

    starts: Sequence[tuple[StartGroup, ComingStarts | None]]

    @property
    def nominal(self) -> int:
        """Return of how many schedules the starts count at their nominal times."""
        return sum(one.jobs for one, coming in self.starts if coming is not None and coming.is_nominal)

    @property
    def left_out(self) -> int:
        """Return of how many schedules the starts are not known."""
        return sum(one.jobs for one, coming in self.starts if coming is None)

    def known(self) -> Iterator[tuple[StartGroup, ComingStarts]]:
        """Yield the groups whose starts are known."""
        return ((one, coming) for one, coming in self.starts if coming is not None)

    def total(self) -> Counter[int]:
        """Return the starts of all schedules in each column."""
        return total_of((one.jobs, coming) for one, coming in self.known())

    def by_tag(self) -> dict[str | None, Counter[int]]:
        """Return the starts in each column of the schedules of each first tag."""
        parted: dict[str | None, list[tuple[int, ComingStarts]]] = {}
        for one, coming in self.known():
            parted.setdefault(one.tag, []).append((one.jobs, coming))
        return {tag: total_of(theirs) for tag, theirs in parted.items()}


def coming_starts(groups: Sequence[StartGroup], view: View) -> FleetStarts:
    """Return the coming starts in a view while the budget lasts, those of the most schedules first."""
    budget = CpuBudget(STARTS_S)
    ordered = sorted(groups, key=lambda one: -one.jobs)
    shared = [(one, _coming(one, view, budget, budget)) for one in ordered if one.jobs > 1]
    windows = CpuBudget(WINDOWS_S)
    return FleetStarts(
        [*shared, *((one, _coming(one, view, budget, windows)) for one in ordered if one.jobs == 1)]
    )


def _coming(one: StartGroup, view: View, budget: CpuBudget, windows: CpuBudget) -> ComingStarts | None:
    if budget.is_spent:
        return None
    try:
        # Windows of several schedules differ: only their nominal times are the same.
        return coming_of(
            one.state_at(view.now), view, listed=False, is_spent=lambda: one.jobs > 1 or windows.is_spent
        )
    except UNUSABLE:
        return NOTHING
