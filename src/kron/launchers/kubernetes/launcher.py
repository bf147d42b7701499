"""The kubernetes launcher: each attempt of a run is one Job, created once, watched until its end."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kron.core.errors import InputError, StoreUnavailableError
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.delivery import (
    DEFAULT_BACKOFF,
    TARGET_FACTOR,
    TOTAL_FACTOR,
    DeliveryResult,
    RemoteLauncher,
)
from kron.launchers.fair_queue import FairTasks, Share
from kron.launchers.kubernetes.api import (
    JOBS,
    ApiClient,
    ApiError,
    ApiUnavailableError,
    Document,
    WatchEvent,
)
from kron.launchers.kubernetes.manifest import (
    SELECTOR,
    JobEnd,
    JobPlace,
    end_of,
    job_document,
    key_in,
    place_of,
    ttl_of,
)
from kron.launchers.kubernetes.reflector import BACKOFF, Reflector
from kron.launchers.kubernetes.spec import TRAITS, KubernetesSettings, settings_of
from kron.launchers.launch import Attempt, check_lease, report_of, tenant_of
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")
# How many deletions and look-ups of one tenant are in flight at once.
MAX_UPKEEP = 20
# How long the API server may take to create a Job, in seconds: as long as one admission webhook may, at most.
CREATE_S = 30.0
# How much longer until a creation without an answer is made or never will be: its way to the server, and a
# write to the server's store that has begun in time.
SETTLE_S = 4.0
GONE = "the Job was deleted"
EXPIRED = "it may have run: its Job is gone, and its time to live has passed"


@dataclass(slots=True)
class TrackedJob:
    """A Job of a run that is not over.

    It `exists` once its creation is confirmed, and is `ending` once its deletion is requested.
    """

    run: RunRecord
    sink: ReportSink
    share: Share
    exists: bool = False
    ending: bool = False


class EndedJob(NamedTuple):
    """A Job that ended and still exists."""

    place: JobPlace
    uid: str
    owner: str
    ended_at: str
    succeeded: bool


class KubernetesLauncher(RemoteLauncher):
    """Creates a Job for each attempt; one that exists already is accepted.

    `namespace` limits which Jobs are watched; None watches all of them. With `by_namespace` each namespace is
    watched from its first Job on, so that no rights on others are needed; and the cluster may be out of reach
    when runs are adopted, because it has no record of them.
    """

    def __init__(
        self,
        clock: Clock,
        api: ApiClient,
        *,
        namespace: str | None = None,
        by_namespace: bool = False,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        super().__init__(clock, self._deliver, reports=True, backoff=backoff)
        # How long the API server may take to create a Job, in seconds.
        self.create_s = CREATE_S
        # Creations without an answer, of this launcher or of the last owner: when they are settled, by the
        # monotonic clock. If the Job was created again before and deleted, they could make it a second time.
        self._settles_at: dict[Attempt, float] = {}
        # Adopted runs that wait until no creation of an earlier owner can be made.
        self._waits: set[asyncio.Task[None]] = set()
        self.traits = TRAITS
        # Called before each start, because the allowed namespaces may have changed since the registration.
        self.check: Callable[[KubernetesSettings], None] | None = None
        self._api = api
        self._namespace = namespace
        self._by_namespace = by_namespace
        self._reflectors: dict[str | None, Reflector] = {}
        self._tracked: dict[JobPlace, TrackedJob] = {}
        self._places: dict[Attempt, JobPlace] = {}
        # Deletions, look-ups and adoptions; none may take the connections of other tenants' starts.
        self._upkeep = FairTasks(
            most=TOTAL_FACTOR * MAX_UPKEEP,
            per_tenant=MAX_UPKEEP,
            per_target=TARGET_FACTOR * MAX_UPKEEP,
            reserved=1,
        )
        self.ended: dict[JobPlace, EndedJob] = {}
        # Returns for how many seconds at least the owner that recorded a start cannot have sent it.
        self.settled_for: Callable[[RunRecord], float] | None = None
        # Called with each run whose Job was created, and the instant in milliseconds.
        self.on_created: Callable[[RunRecord, int], None] | None = None

    def _reflector_of(self, namespace: str) -> Reflector:
        """Return the reflector of a namespace's Jobs."""
        scope = namespace if self._by_namespace else self._namespace
        if scope not in self._reflectors:
            self._reflectors[scope] = Reflector(
                self._api,
                self._clock,
                JOBS,
                namespace=scope,
                labels=SELECTOR,
                listed=partial(self._listed, scope),
                changed=self._changed,
            )
        return self._reflectors[scope]

    # --- starts ------------------------------------------------------------------------------------

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Queue the creation of a Job."""
        place = place_of(launch.job, launch.run)
        self._track(place, TrackedJob(launch.run, sink, _share_of(launch, place)))
        self._reflector_of(place.namespace).start()
        super().start(launch, sink)

    def target_of(self, launch: Launch) -> str:
        """Return the namespace: the requests of each are limited."""
        return place_of(launch.job, launch.run).namespace

    async def _deliver(self, launch: Launch) -> DeliveryResult:
        """Create the Job; a lost answer is harmless, because the name is taken then."""
        place = place_of(launch.job, launch.run)
        tracked = self._tracked.get(place)
        if tracked is None:
            return DeliveryResult(run_id=place.name)  # the Job of an earlier creation has ended
        if tracked.ending and not tracked.exists:
            return await self._give_up(place, tracked)
        if self.check is not None:
            self.check(settings_of(launch.job.launcher))
        try:
            document = await self._created(launch, place)
        except ApiError as error:
            retry = error.is_temporary
            return DeliveryResult(f"the Job {place.name} is refused: {error}", retry=retry)
        except ApiUnavailableError as error:
            if error.may_follow:
                self._unsettle(launch.run)
            return DeliveryResult(f"the Job {place.name} cannot be created: {error}", retry=True)
        if key_in(document) != launch.run.key:
            return DeliveryResult(f"another Job has the name {place.name}")
        if self.on_created is not None:
            self.on_created(launch.run, (self._clock.now() - EPOCH) // MILLISECOND)
        self._confirm(place)
        return DeliveryResult(run_id=place.name)

    async def _created(self, launch: Launch, place: JobPlace) -> Document:
        """Return the Job that was created, or the one that exists already."""
        try:
            return await self._api.create(
                JOBS,
                place.namespace,
                job_document(launch),
                check=partial(check_lease, launch),
                within_s=self.create_s,
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return await self._api.get(JOBS, *place)

    def _confirm(self, place: JobPlace) -> None:
        """Note that a Job exists."""
        tracked = self._tracked.get(place)
        if tracked is not None and not tracked.exists:
            tracked.exists = True
            if tracked.ending:
                self._delete(place, tracked)

    async def _give_up(self, place: JobPlace, tracked: TrackedJob) -> DeliveryResult:
        """End a run whose Job was never seen: it is deleted if it exists, and not created if it does not."""
        try:
            await self._api.get(JOBS, *place)
        except ApiError as error:
            if not error.is_missing:
                return DeliveryResult(str(error), retry=error.is_temporary)
            self._removed(place)
        except ApiUnavailableError as error:
            return DeliveryResult(str(error), retry=True)
        else:
            self._confirm(place)
        return DeliveryResult(run_id=place.name)

    def delay_before(self, launch: Launch) -> float:
        """Return how long an earlier creation of the same Job may still be made."""
        settled_at = self._settles_at.get((launch.run.key, launch.run.attempt))
        return 0.0 if settled_at is None else max(0.0, settled_at - self._clock.monotonic())

    def _unsettle(self, run: RunRecord) -> None:
        """Note that the creation of a run's Job may have been sent until now, without an answer."""
        settled_at = self._clock.monotonic() + self.create_s + SETTLE_S
        self._settles_at[run.key, run.attempt] = settled_at

    def _report(
        self, launch: Launch, event: RunEvent, error: str | None = None, run_id: str | None = None
    ) -> None:
        self._settles_at.pop((launch.run.key, launch.run.attempt), None)
        if event is RunEvent.LAUNCH_FAILED:
            self._untrack(place_of(launch.job, launch.run))
        super()._report(launch, event, error, run_id)

    # --- ends --------------------------------------------------------------------------------------

    def _listed(self, scope: str | None, documents: list[Document]) -> None:
        """Compare the Jobs that exist with those tracked; one that is missing is looked up."""
        present = {_place(document): document for document in documents}
        for place in [each for each in self.ended if scope in (None, each.namespace)]:
            if place not in present:
                del self.ended[place]
        for place, document in present.items():
            self._seen(place, document)
        for place, tracked in list(self._tracked.items()):
            if tracked.exists and scope in (None, place.namespace) and place not in present:
                self._upkeep.start(partial(self._look_up, place), tracked.share)

    async def _look_up(self, place: JobPlace) -> None:
        """Report the end of a Job that is gone; it may have been created after the list was read."""
        failures = 0
        while place in self._tracked:  # each round waits
            try:
                self._seen(place, await self._api.get(JOBS, *place))
            except ApiError as error:
                if error.is_missing:
                    self._removed(place)
                if not error.is_temporary:
                    return
            except ApiUnavailableError:
                pass
            else:
                return
            failures += 1
            await sleep_for(self._clock, BACKOFF.delay_after(place.name, failures) or 0)

    def _changed(self, event: WatchEvent) -> None:
        place = _place(event.object)
        self._seen(place, event.object)
        if event.type == "DELETED":
            self.ended.pop(place, None)
            self._removed(place)

    def _seen(self, place: JobPlace, document: Document) -> None:
        end = end_of(document)
        if end is None:
            tracked = self._tracked.get(place)
            if tracked is not None and key_in(document) == tracked.run.key:
                self._confirm(place)
            return
        self.ended[place] = _ended(place, document, end)
        tracked = self._tracked.get(place)
        if tracked is None or key_in(document) != tracked.run.key:
            return
        self._untrack(place)
        if end.succeeded:
            tracked.sink(report_of(self._clock, tracked.run, RunEvent.SUCCESS, run_id=place.name))
        else:
            error = end.message or "the Job failed"
            tracked.sink(report_of(self._clock, tracked.run, RunEvent.FAILED, error, place.name))

    def _removed(self, place: JobPlace) -> None:
        tracked = self._untrack(place)
        if tracked is not None:
            event = RunEvent.CANCELLED if tracked.ending else RunEvent.FAILED
            error = "ended on request" if tracked.ending else GONE
            tracked.sink(report_of(self._clock, tracked.run, event, error, place.name))

    def end(self, run: RunRecord) -> None:
        """Delete the Job of a run in the foreground, so that it is gone only when its pods are."""
        place = self._places.get((run.key, run.attempt))
        if place is not None and not self._tracked[place].ending:
            tracked = self._tracked[place]
            tracked.ending = True
            if tracked.exists:
                self._delete(place, tracked)

    def _delete(self, place: JobPlace, tracked: TrackedJob) -> None:
        self._upkeep.start(partial(self._delete_job, place), tracked.share)

    async def _delete_job(self, place: JobPlace) -> None:
        """Delete a Job, as often as it takes; its end is seen by the watch."""
        failures = 0
        while place in self._tracked:  # each round waits
            try:
                await self._api.delete(JOBS, *place, foreground=True)
            except ApiError as error:
                if error.is_missing:
                    self._removed(place)
                    return
                if not error.is_temporary:
                    _log.warning("the Job %s/%s cannot be deleted: %s", *place, error)
                    return
            except ApiUnavailableError:
                pass
            else:
                return
            failures += 1
            await sleep_for(self._clock, BACKOFF.delay_after(place.name, failures) or 0)

    async def remove(self, ended: EndedJob) -> None:
        """Delete a Job that ended, as far as the API server answers."""
        self.ended.pop(ended.place, None)
        try:
            await self._api.delete(JOBS, *ended.place, uid=ended.uid)
        except (ApiError, ApiUnavailableError) as error:
            _log.info("the Job %s/%s is not deleted: %s", *ended.place, error)

    def _track(self, place: JobPlace, tracked: TrackedJob) -> None:
        self._untrack(place)
        self._tracked[place] = tracked
        self._places[tracked.run.key, tracked.run.attempt] = place

    def _untrack(self, place: JobPlace) -> TrackedJob | None:
        tracked = self._tracked.pop(place, None)
        if tracked is not None:
            self._places.pop((tracked.run.key, tracked.run.attempt), None)
        return tracked

    def _forget_all(self) -> None:
        self._upkeep.cancel()
        for wait in self._waits:
            wait.cancel()
        self._tracked.clear()
        self._places.clear()

    # --- owners ------------------------------------------------------------------------------------

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Find the Jobs of runs by their names: those that exist are watched, or their end is reported.

        A Job whose creation was not confirmed and that is gone may have run and expired: it is not created
        again. With `by_namespace` the take-over does not wait for the Jobs to be listed: a namespace that
        hangs would delay the starts of all tenants.
        """
        now = self._clock.monotonic()
        self._settles_at = {key: at for key, at in self._settles_at.items() if at > now}
        adopted: set[str] = set()
        for reflector, launches in self._by_reflector(runs).items():
            if self._by_namespace:
                self._adopt_later(reflector, launches, sink)
                adopted |= {launch.run.key for launch in launches}
                continue
            present = await self._present(reflector)
            adopted |= {launch.run.key for launch in launches if self._adopt_one(launch, sink, present)}
            reflector.start()
        return frozenset(adopted)

    def _adopt_later(self, reflector: Reflector, launches: Sequence[Launch], sink: ReportSink) -> None:
        """Track the Jobs of runs, and find out whether they exist."""
        for launch in launches:
            place = place_of(launch.job, launch.run)
            self._track(place, TrackedJob(launch.run, sink, _share_of(launch, place)))
        # The listing of a namespace is for all its tenants, and takes nothing from those of others.
        namespace = place_of(launches[0].job, launches[0].run).namespace
        share = Share(f"namespace {namespace}", namespace)
        self._upkeep.start(partial(self._adopt_listed, reflector, launches, sink), share)

    async def _adopt_listed(self, reflector: Reflector, launches: Sequence[Launch], sink: ReportSink) -> None:
        """Report the runs whose Jobs do not exist as orphans, so that those are created."""
        present = await self._present(reflector)
        for launch in launches:
            place = place_of(launch.job, launch.run)
            before = self._tracked.get(place)
            if before is None or before.run != launch.run:
                continue  # it has started again, or was reported
            if not self._adopt_one(launch, sink, present):
                self._untrack(place)
                event = RunEvent.CANCELLED if before.ending else RunEvent.ORPHANED
                sink(report_of(self._clock, launch.run, event))
            elif before.ending:
                self.end(launch.run)
        reflector.start()

    def _by_reflector(self, runs: Sequence[Launch]) -> dict[Reflector, list[Launch]]:
        """Return runs by the reflector of their Jobs; those that cannot be read any more are left out."""
        grouped: dict[Reflector, list[Launch]] = {}
        for launch in runs:
            try:
                place = place_of(launch.job, launch.run)
            except InputError:
                continue
            grouped.setdefault(self._reflector_of(place.namespace), []).append(launch)
        return grouped

    async def _present(self, reflector: Reflector) -> dict[JobPlace, Document] | None:
        """Return the Jobs that exist, or None where they cannot be listed and need not be."""
        try:
            documents = (await reflector.list()).items
        except (ApiError, ApiUnavailableError) as error:
            if not self._by_namespace:
                message = f"The Jobs cannot be listed: {error}"
                raise StoreUnavailableError(message, cause=error) from error
            _log.warning("the Jobs cannot be listed: %s", error)
            return None
        return {_place(document): document for document in documents}

    def _adopt_one(self, launch: Launch, sink: ReportSink, present: dict[JobPlace, Document] | None) -> bool:
        run = launch.run
        place, ttl = place_of(launch.job, run), ttl_of(launch.job)
        if present is None and run.acked:
            # It was created; whether it still exists is seen when its namespace is listed.
            self._track(place, TrackedJob(run, sink, _share_of(launch, place), exists=True))
            return True
        document = None if present is None else present.get(place)
        if document is not None and key_in(document) == run.key:
            self._track(place, TrackedJob(run, sink, _share_of(launch, place), exists=True))
            if not run.acked:
                sink(report_of(self._clock, run, RunEvent.ACCEPTED, run_id=place.name))
            self._seen(place, document)
            return True
        now = int(self._clock.now().timestamp())
        if not run.acked and ttl is not None and now - (run.started_at or 0) // 1000 >= ttl:
            self._untrack(place)
            sink(report_of(self._clock, run, RunEvent.FAILED, EXPIRED))
            return True
        if run.acked:
            return False
        if self.settled_for is None:
            # The last owner may have requested the Job until it lost its lease.
            self._unsettle(run)
            return False
        left = self.create_s + SETTLE_S - self.settled_for(run)
        if left <= 0:
            return False
        # Its record is not changed before: it names the last owner that may have requested the Job.
        self._abandon(run)
        tracked = TrackedJob(run, sink, _share_of(launch, place))
        self._track(place, tracked)
        self._spawn_wait(self._adopt_settled(place, tracked, left))
        return True

    def _abandon(self, run: RunRecord) -> None:
        """End a delivery from an earlier ownership of this process."""
        delivery = self._deliveries.get((run.key, run.attempt))
        if delivery is not None:
            if delivery.task is not None:
                delivery.task.cancel()
            self._drop(delivery)

    def _spawn_wait(self, wait: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(wait)
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)

    async def _adopt_settled(self, place: JobPlace, tracked: TrackedJob, seconds: float) -> None:
        """Wait until no creation of an earlier owner can be made; then find out whether the Job exists."""
        await sleep_for(self._clock, seconds)
        run, failures = tracked.run, 0
        while self._tracked.get(place) is tracked:  # each round waits
            try:
                document = await self._api.get(JOBS, *place)
            except ApiError as error:
                if error.is_missing and self._tracked.get(place) is tracked:
                    self._settled_without(place, tracked)
                    return
            except ApiUnavailableError:
                pass
            else:
                if self._tracked.get(place) is tracked and key_in(document) == run.key:
                    tracked.sink(report_of(self._clock, run, RunEvent.ACCEPTED, run_id=place.name))
                    self._confirm(place)
                    self._seen(place, document)
                elif self._tracked.get(place) is tracked:
                    self._settled_without(place, tracked)
                return
            failures += 1
            await sleep_for(self._clock, BACKOFF.delay_after(place.name, failures) or 0)

    def _settled_without(self, place: JobPlace, tracked: TrackedJob) -> None:
        """Report a run whose Job does not exist: as an orphan, so that it is created, unless it was seen."""
        if tracked.exists or tracked.ending:
            self._removed(place)
        else:
            self._untrack(place)
            tracked.sink(report_of(self._clock, tracked.run, RunEvent.ORPHANED))

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the creations in flight; Jobs that run are left for the next owner to adopt."""
        await super().close(wait=wait)
        for reflector in self._reflectors.values():
            await reflector.stop()
        self._forget_all()
        self._api.close()

    def kill(self) -> None:
        """Drop everything at once, as a crash would."""
        for reflector in self._reflectors.values():
            reflector.kill()
        for task in self._tasks:
            task.cancel()
        self._deliveries.clear()
        self._forget_all()


def _share_of(launch: Launch, place: JobPlace) -> Share:
    return Share(tenant_of(launch), place.namespace)


def _place(document: Document) -> JobPlace:
    metadata = document["metadata"]
    return JobPlace(metadata["namespace"], metadata["name"])


def _ended(place: JobPlace, document: Document, end: JobEnd) -> EndedJob:
    metadata, status = document["metadata"], document.get("status") or {}
    owners = metadata.get("ownerReferences") or [{}]
    times = [each.get("lastTransitionTime") or "" for each in status.get("conditions") or ()]
    ended_at = status.get("completionTime") or max(times, default="")
    return EndedJob(place, metadata["uid"], owners[0].get("uid", ""), ended_at, end.succeeded)
