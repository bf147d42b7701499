"""The page of the present: the timeline of the fleet, what needs attention, and the health of the service."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from kron.core.plan.query import JobFilter
from kron.core.time.instant import rfc3339
from kron.fronts.service.auth.principal import current_caller
from kron.fronts.service.client import LocalClient
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.web.attention import Attention, attention_of
from kron.fronts.service.web.fleet import FleetPage, fleet_of, load_of
from kron.fronts.service.web.schedule_lanes import schedule_lanes
from kron.fronts.service.web.start_group import MAX_MEMBERS, StartGroup, StartGroups, start_groups_of
from kron.fronts.service.web.tag_lanes import tag_lanes
from kron.fronts.service.web.time_text import UTC_ZONE, PageTime, moment_of
from kron.fronts.service.web.timeline import MAX_LANES, FleetTimeline, Zoom, view_of
from kron.fronts.service.web.workers import lease_health
from kron.ports import Clock

# Viewers of one tenant share a picture that is this young, in seconds; this many pictures are kept.
SHARED_S, MAX_SHARED = 4.0, 64
# Fleets are larger than pictures.
MAX_FLEETS = 4

T = TypeVar("T")


class Shared(Generic[T]):
    """Answers that several viewers share for a moment: the first one computes, the others wait for it."""

    def __init__(self, clock: Clock, *, keep: int = MAX_SHARED) -> None:
        self._clock = clock
        self._keep = keep
        self._answers: OrderedDict[Hashable, tuple[float, asyncio.Future[T]]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return a young answer, or make one; the key must hold everything that it depends on."""
        now = self._clock.monotonic()
        at, answer = self._answers.get(key, (0.0, None))
        if answer is None or now - at >= SHARED_S or (answer.done() and answer.exception()):
            answer = asyncio.ensure_future(make())
            self._answers[key] = now, answer
            self._answers.move_to_end(key)
            if len(self._answers) > self._keep:
                self._answers.popitem(last=False)
        return await asyncio.shield(answer)

    def forget(self, key: Hashable) -> None:
        """Make the next answer anew."""
        self._answers.pop(key, None)


class HealthItem(NamedTuple):
    """One part of the service: its name, its look and its state."""

    name: str
    look: str
    text: str


class NowPage(NamedTuple):
    """The page: its picture, problems and health; `notes` say what the picture leaves out."""

    timeline: FleetTimeline
    zoom: Zoom
    start: PageTime
    end: PageTime
    earlier: str
    later: str
    total: int
    notes: list[str]
    problems: list[Attention]
    health: list[HealthItem]


class NowPages:
    """Reads what the page of the present shows."""

    def __init__(self, registrar: Registrar, client: LocalClient) -> None:
        self._registrar = registrar
        self._client = client
        self._query = registrar.catalog.query
        self._shared: Shared[NowPage] = Shared(registrar.clock)
        self._fleets: Shared[FleetPage] = Shared(registrar.clock)
        self._groups: Shared[StartGroups] = Shared(registrar.clock, keep=MAX_FLEETS)

    async def page(self, zoom: Zoom, middle: int | None, tag: str | None) -> NowPage:
        """Return the page around an instant, or around now."""
        key = current_caller().users, zoom, middle, tag
        return await self._shared.get(key, lambda: self._page(zoom, middle, tag))

    async def _page(self, zoom: Zoom, middle: int | None, tag: str | None) -> NowPage:
        now = self._registrar.now()
        view = view_of(zoom, now if middle is None else middle, now)
        wanted = JobFilter(tag=tag)
        began = self._registrar.clock.monotonic()
        found = await self._query.jobs(wanted, limit=MAX_LANES + 1)
        answered_s = self._registrar.clock.monotonic() - began
        total = len(found)
        if total <= MAX_LANES:
            shown = await schedule_lanes(self._query, found, view, zoom)
        else:
            shown, total = await tag_lanes(self._query, self._fleet_of(wanted), wanted, view, zoom)
        return NowPage(
            shown.picture,
            zoom,
            moment_of(view.start, UTC_ZONE, now),
            moment_of(view.end, UTC_ZONE, now),
            rfc3339(view.start // 1000),
            rfc3339(view.end // 1000),
            total,
            shown.notes,
            await attention_of(self._query, shown.jobs, shown.problems, now),
            await self._health(answered_s),
        )

    async def _fleet_of(self, wanted: JobFilter) -> StartGroups:
        """Return the caller's schedules by what they start together."""
        key = current_caller().users, wanted.tag
        return await self._groups.get(key, lambda: start_groups_of(self._query, wanted))

    async def fleet(self) -> FleetPage:
        """Return the coming load of the caller's schedules."""
        return await self._fleets.get(current_caller().users, self._fleet)

    def forget_fleet(self) -> None:
        """Compute the load anew: schedules were changed here."""
        self._fleets.forget(current_caller().users)
        self._groups.forget((current_caller().users, None))

    async def _fleet(self) -> FleetPage:
        found, now = await self._fleet_of(JobFilter()), self._registrar.now()
        load = await self._client.compute_pool.run(load_of, found, now)
        definitions = load.definitions
        members: list[StartGroup] = []
        if definitions:
            wanted = JobFilter(definitions=definitions, paused=False, suspended=False, irregular=False)
            groups = await self._query.groups(wanted, limit=MAX_MEMBERS, singly=True)
            members = [StartGroup(group.definition, group.name) for group in groups]
        return await self._client.compute_pool.run(fleet_of, load, members)

    async def _health(self, answered_s: float) -> list[HealthItem]:
        ready, clock = await self._client.health(), await self._query.clock_problem()
        worker, is_ok = ready["worker"], ready["status"] == "ok"
        return [
            HealthItem("Store", "ok", f"answered in {max(1, round(1000 * answered_s))} ms"),
            HealthItem("Worker", "ok" if is_ok else "bad", worker or "in another process"),
            HealthItem("Leases", *lease_health(await self._query.leases())),
            HealthItem("Clock", "ok" if clock is None else "bad", clock or "steady"),
        ]
