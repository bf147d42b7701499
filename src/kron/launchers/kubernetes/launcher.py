"""The kubernetes launcher: each attempt of a run is one Job, created once, watched until its end."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from kron.core.errors import InputError, StoreUnavailableError
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent, Traits
from kron.core.time.instant import EPOCH
from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.delivery import DEFAULT_BACKOFF, DeliveryResult, RemoteLauncher
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
from kron.launchers.launch import MILLISECOND, check_lease, report_of
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")
# A Job that is created is known to exist, and its end is watched: `remote` work would need a run timeout.
TRAITS = Traits(reports=True, idempotent=True, enqueues=False, remote=False)
GONE = "the Job was deleted"
EXPIRED = "it may have run: its Job is gone, and its time to live has passed"


@dataclass(slots=True)
class TrackedJob:
    """A Job of a run that is not over.

    It `exists` once its creation is confirmed, and is `ending` once its deletion is requested.
    """

    run: RunRecord
    sink: ReportSink
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

    `namespace` limits which Jobs are watched; None watches all of them.
    """

    def __init__(
        self,
        clock: Clock,
        api: ApiClient,
        *,
        namespace: str | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        super().__init__(clock, self._deliver, reports=True, backoff=backoff)
        self.traits = TRAITS
        self._api = api
        self._tracked: dict[JobPlace, TrackedJob] = {}
        self._deletions: set[asyncio.Task[None]] = set()
        self.ended: dict[JobPlace, EndedJob] = {}
        # Called with each run whose Job was created, and the instant in milliseconds.
        self.on_created: Callable[[RunRecord, int], None] | None = None
        self._reflector = Reflector(
            api, clock, JOBS, namespace=namespace, labels=SELECTOR, listed=self._listed, changed=self._changed
        )

    # --- starts ------------------------------------------------------------------------------------

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Queue the creation of a Job."""
        place = place_of(launch.job, launch.run)
        self._tracked[place] = TrackedJob(launch.run, sink)
        self._reflector.start()
        super().start(launch, sink)

    def target_of(self, launch: Launch) -> str:
        """Return the namespace: the requests of each are limited."""
        return place_of(launch.job, launch.run).namespace

    async def _deliver(self, launch: Launch) -> DeliveryResult:
        """Create the Job; a lost answer is harmless, because the name is taken then."""
        place = place_of(launch.job, launch.run)
        check_lease(launch)
        try:
            try:
                document = await self._api.create(JOBS, place.namespace, job_document(launch))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                document = await self._api.get(JOBS, *place)
        except ApiError as error:
            retry = error.is_temporary
            return DeliveryResult(f"the Job {place.name} is refused: {error}", retry=retry)
        except ApiUnavailableError as error:
            return DeliveryResult(f"the Job {place.name} cannot be created: {error}", retry=True)
        if key_in(document) != launch.run.key:
            return DeliveryResult(f"another Job has the name {place.name}")
        if self.on_created is not None:
            self.on_created(launch.run, (self._clock.now() - EPOCH) // MILLISECOND)
        tracked = self._tracked.get(place)
        if tracked is not None:
            tracked.exists = True
            if tracked.ending:
                self._delete(place)
        return DeliveryResult(run_id=place.name)

    def _report(
        self, launch: Launch, event: RunEvent, error: str | None = None, run_id: str | None = None
    ) -> None:
        if event is RunEvent.LAUNCH_FAILED:
            self._tracked.pop(place_of(launch.job, launch.run), None)
        super()._report(launch, event, error, run_id)

    # --- ends --------------------------------------------------------------------------------------

    def _listed(self, documents: list[Document]) -> None:
        """Compare the Jobs that exist with those tracked; one that is missing is looked up."""
        present = {_place(document): document for document in documents}
        self.ended = {place: each for place, each in self.ended.items() if place in present}
        for place, document in present.items():
            self._seen(place, document)
        for place, tracked in list(self._tracked.items()):
            if tracked.exists and place not in present:
                self._spawn_task(self._look_up(place))

    async def _look_up(self, place: JobPlace) -> None:
        """Report the end of a Job that is gone; it may have been created after the list was read."""
        try:
            self._seen(place, await self._api.get(JOBS, *place))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                self._removed(place)
        except ApiUnavailableError:
            pass  # the watch cannot continue either, and lists again

    def _changed(self, event: WatchEvent) -> None:
        place = _place(event.object)
        self._seen(place, event.object)
        if event.type == "DELETED":
            self.ended.pop(place, None)
            self._removed(place)

    def _seen(self, place: JobPlace, document: Document) -> None:
        end = end_of(document)
        if end is None:
            return
        self.ended[place] = _ended(place, document, end)
        tracked = self._tracked.get(place)
        if tracked is None or key_in(document) != tracked.run.key:
            return
        del self._tracked[place]
        if end.succeeded:
            tracked.sink(report_of(self._clock, tracked.run, RunEvent.SUCCESS, run_id=place.name))
        else:
            error = end.message or "the Job failed"
            tracked.sink(report_of(self._clock, tracked.run, RunEvent.FAILED, error, place.name))

    def _removed(self, place: JobPlace) -> None:
        tracked = self._tracked.pop(place, None)
        if tracked is not None:
            event = RunEvent.CANCELLED if tracked.ending else RunEvent.FAILED
            error = "ended on request" if tracked.ending else GONE
            tracked.sink(report_of(self._clock, tracked.run, event, error, place.name))

    def end(self, run: RunRecord) -> None:
        """Delete the Job of a run in the foreground, so that it is gone only when its pods are."""
        for place, tracked in self._tracked.items():
            if (tracked.run.key, tracked.run.attempt) == (run.key, run.attempt) and not tracked.ending:
                tracked.ending = True
                if tracked.exists:
                    self._delete(place)

    def _delete(self, place: JobPlace) -> None:
        self._spawn_task(self._delete_job(place))

    async def _delete_job(self, place: JobPlace) -> None:
        """Delete a Job, as often as it takes; its end is seen by the watch."""
        failures = 0
        while place in self._tracked:  # each round waits
            try:
                await self._api.delete(JOBS, *place, foreground=True)
            except ApiError as error:
                if error.status == HTTPStatus.NOT_FOUND:
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
            _log.info("the Job %s/%s stays: %s", *ended.place, error)

    def _spawn_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    # --- owners ------------------------------------------------------------------------------------

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Find the Jobs of runs by their names: those that exist are watched, or their end is reported.

        A Job whose creation was not confirmed and that is gone may have run and expired: it is not created
        again.
        """
        try:
            documents = (await self._reflector.list()).items
        except (ApiError, ApiUnavailableError) as error:
            raise StoreUnavailableError(f"The Jobs cannot be listed: {error}", cause=error) from error
        present = {_place(document): document for document in documents}
        adopted = {launch.run.key for launch in runs if self._adopt_one(launch, sink, present)}
        self._reflector.start()
        return frozenset(adopted)

    def _adopt_one(self, launch: Launch, sink: ReportSink, present: dict[JobPlace, Document]) -> bool:
        run = launch.run
        try:
            place = place_of(launch.job, run)
            ttl = ttl_of(launch.job)
        except InputError:
            return False
        document = present.get(place)
        if document is not None and key_in(document) == run.key:
            self._tracked[place] = TrackedJob(run, sink, exists=True)
            if not run.acked:
                sink(report_of(self._clock, run, RunEvent.ACCEPTED, run_id=place.name))
            self._seen(place, document)
            return True
        now = int(self._clock.now().timestamp())
        if not run.acked and ttl is not None and now - (run.started_at or 0) // 1000 >= ttl:
            sink(report_of(self._clock, run, RunEvent.FAILED, EXPIRED))
            return True
        return False

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the creations in flight; Jobs that run are left for the next owner to adopt."""
        await super().close(wait=wait)
        await self._reflector.stop()
        for task in list(self._deletions):
            task.cancel()
        self._tracked.clear()

    def kill(self) -> None:
        """Drop everything at once, as a crash would."""
        self._reflector.kill()
        for task in (*self._tasks, *self._deletions):
            task.cancel()
        self._deliveries.clear()
        self._tracked.clear()


def _place(document: Document) -> JobPlace:
    metadata = document["metadata"]
    return JobPlace(metadata["namespace"], metadata["name"])


def _ended(place: JobPlace, document: Document, end: JobEnd) -> EndedJob:
    metadata, status = document["metadata"], document.get("status") or {}
    owners = metadata.get("ownerReferences") or [{}]
    times = [each.get("lastTransitionTime") or "" for each in status.get("conditions") or ()]
    ended_at = status.get("completionTime") or max(times, default="")
    return EndedJob(place, metadata["uid"], owners[0].get("uid", ""), ended_at, end.succeeded)
