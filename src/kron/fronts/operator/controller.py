"""The controller: turns changes of KronJobs and KronCalendars into definitions, runs and pauses.

It decides nothing about time. Every write goes through the catalog, as in every other front.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from kron.app.catalog import Catalog
from kron.core.errors import ConflictError, InvalidJobError, KronError, OwnedError, StoreError
from kron.fronts.operator.resource import (
    PAUSED,
    RUN_NOW,
    KronJob,
    ObjectName,
    calendars_of,
    definition_of,
    kronjob_of,
)
from kron.fronts.operator.state import RecordRefusedError
from kron.fronts.operator.status import INVALID, SpecProblem
from kron.fronts.operator.store import KubernetesStore
from kron.launchers.backoff import sleep_for
from kron.launchers.kubernetes.api import (
    KRONCALENDARS,
    KRONJOBS,
    ApiClient,
    ApiError,
    ApiUnavailableError,
    Document,
    ResourceList,
    WatchEvent,
)
from kron.launchers.kubernetes.reflector import BACKOFF, Reflector
from kron.ports import Clock
from kron.telemetry.counters import CALL_BOUNDS, Histogram

_log = logging.getLogger("kron.operator")
# KronJobs that are reconciled at the same time.
PARALLEL = 16


class Controller:
    """Keeps the records of KronJobs equal to their specs, while this operator is the leader."""

    def __init__(
        self,
        api: ApiClient,
        clock: Clock,
        store: KubernetesStore,
        catalog: Catalog,
        *,
        now: Callable[[], int],
        namespace: str | None = None,
    ) -> None:
        self._clock = clock
        self._store = store
        self._catalog = catalog
        self._now = now
        self._known: dict[ObjectName, KronJob] = {}
        self._calendars: dict[ObjectName, Document] = {}
        # What changed, in order: the newest document of a KronJob, or None where it is gone.
        self._changes: dict[ObjectName, KronJob | None] = {}
        self._has_changes = asyncio.Event()
        # KronJobs that are reconciled later because their records are refused: how often they were in a row.
        self._refusals: dict[ObjectName, int] = {}
        self._retries: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self.durations = Histogram(CALL_BOUNDS)
        self._kronjobs = Reflector(
            api, clock, KRONJOBS, namespace=namespace, listed=self._listed, changed=self._changed
        )
        self._days = Reflector(
            api,
            clock,
            KRONCALENDARS,
            namespace=namespace,
            listed=self._calendars_listed,
            changed=self._calendar_changed,
        )

    @property
    def depth(self) -> int:
        """Return how many KronJobs wait to be reconciled."""
        return len(self._changes)

    async def take_over(self, listed: ResourceList) -> None:
        """Reconcile every KronJob of a list, and watch for changes after it."""
        await self.stop()
        try:
            calendars = await self._days.list()
        except (ApiError, ApiUnavailableError) as error:
            raise StoreError(f"The KronCalendars cannot be listed: {error}") from error
        self._calendars = {_place(each): each for each in calendars.items}
        kronjobs = [kronjob_of(each) for each in listed.items]
        self._known = {each.place: each for each in kronjobs}
        self._changes.clear()
        limit = asyncio.Semaphore(PARALLEL)

        async def one(kronjob: KronJob) -> None:
            async with limit:
                await self._reconcile(kronjob)

        done = await asyncio.gather(*map(one, kronjobs), return_exceptions=True)
        refused: list[KronJob] = []
        for kronjob, result in zip(kronjobs, done, strict=True):
            if isinstance(result, RecordRefusedError):
                # Its edits are not recorded: it starts nothing until they are.
                self._store.held[kronjob.identity] = str(result)
                refused.append(kronjob)
            elif isinstance(result, BaseException):
                raise result
        self._kronjobs.start(listed.version)
        self._days.start(calendars.version)
        self._task = asyncio.create_task(self._work(), name="kron reconcile")
        for kronjob in refused:
            self._retry_later(kronjob.place)

    async def stop(self) -> None:
        """Reconcile nothing more."""
        await self._kronjobs.stop()
        await self._days.stop()
        self._drop_retries()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def kill(self) -> None:
        """Stop at once, as a crash would."""
        self._kronjobs.kill()
        self._days.kill()
        self._drop_retries()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # --- changes -----------------------------------------------------------------------------------

    def _listed(self, documents: list[Document]) -> None:
        present = {each.place: each for each in map(kronjob_of, documents)}
        for place in self._known.keys() - present.keys():
            self._note(place, None)
        for place, kronjob in present.items():
            self._note(place, kronjob)

    def _changed(self, event: WatchEvent) -> None:
        kronjob = kronjob_of(event.object)
        self._note(kronjob.place, None if event.type == "DELETED" else kronjob)

    def _note(self, place: ObjectName, kronjob: KronJob | None) -> None:
        before = self._known.get(place)
        if kronjob is None:
            self._known.pop(place, None)
        else:
            self._known[place] = kronjob
            self._store.attach_newer(kronjob)
            if before is not None and _asks_the_same(before, kronjob):
                return  # an echo of a status that this operator wrote
        self._changes.pop(place, None)
        self._changes[place] = kronjob
        self._has_changes.set()

    def _calendars_listed(self, documents: list[Document]) -> None:
        self._calendars = {_place(each): each for each in documents}
        self._note_all({place.namespace for place in self._known})

    def _calendar_changed(self, event: WatchEvent) -> None:
        place = _place(event.object)
        if event.type == "DELETED":
            self._calendars.pop(place, None)
        else:
            self._calendars[place] = event.object
        self._note_all({place.namespace})

    def _note_all(self, namespaces: set[str]) -> None:
        for place, kronjob in self._known.items():
            if place.namespace in namespaces:
                self._changes[place] = kronjob
                self._has_changes.set()

    async def _work(self) -> None:
        """Reconcile changes, oldest first; after a failure of the store again, until the lease is lost."""
        failures = 0
        while True:
            await self._has_changes.wait()
            if not self._changes:
                self._has_changes.clear()
                continue
            place = next(iter(self._changes))
            kronjob = self._changes.pop(place)
            try:
                await (self._remove(place) if kronjob is None else self._reconcile(kronjob))
                failures = 0
                self._accepted(place, kronjob)
            except OwnedError:
                return
            except RecordRefusedError as error:
                _log.warning("%s is reconciled later: %s", place, error)
                self._retry_later(place)
            except (StoreError, ConflictError) as error:
                self._changes.setdefault(place, kronjob)
                failures += 1
                _log.warning("%s is reconciled later: %s", place, error)
                await sleep_for(self._clock, BACKOFF.delay_after(str(place), failures) or 0)
            except KronError:
                _log.exception("%s cannot be reconciled", place)

    def _accepted(self, place: ObjectName, kronjob: KronJob | None) -> None:
        """Note that a KronJob was reconciled: its record follows its spec."""
        self._refusals.pop(place, None)
        if kronjob is not None:
            self._store.held.pop(kronjob.identity, None)

    def _retry_later(self, place: ObjectName) -> None:
        """Reconcile a KronJob again whose record was refused, while others are reconciled."""
        failures = self._refusals[place] = self._refusals.get(place, 0) + 1
        retry = asyncio.create_task(self._retry(place, failures))
        self._retries.add(retry)
        retry.add_done_callback(self._retries.discard)

    async def _retry(self, place: ObjectName, failures: int) -> None:
        await sleep_for(self._clock, BACKOFF.delay_after(str(place), failures) or 0)
        if place in self._refusals:
            self._changes.setdefault(place, self._known.get(place))
            self._has_changes.set()

    def _drop_retries(self) -> None:
        self._refusals.clear()
        for retry in self._retries:
            retry.cancel()

    # --- one KronJob -------------------------------------------------------------------------------

    async def _remove(self, place: ObjectName) -> None:
        """Forget a KronJob; its Jobs are deleted by the garbage collector. Another may claim its identity."""
        gone = [identity for identity, each in self._store.kronjobs.items() if each.place == place]
        for identity in gone:
            await self._store.detach(identity)
            for waiting in self._known.values():
                if waiting.identity == identity and waiting.place not in self._changes:
                    self._note_again(waiting)

    def _note_again(self, kronjob: KronJob) -> None:
        self._changes[kronjob.place] = kronjob
        self._has_changes.set()

    async def _reconcile(self, kronjob: KronJob) -> None:
        started = self._clock.monotonic()
        with self._clock.working():
            await self._reconcile_now(kronjob)
        self.durations.add(self._clock.monotonic() - started)

    async def _reconcile_now(self, kronjob: KronJob) -> None:
        identity = kronjob.identity
        known = self._store.kronjobs.get(identity)
        if known is not None and known.place == kronjob.place and known.uid != kronjob.uid:
            # It was deleted and created again: a new record starts now, and Jobs have the same names.
            await self._store.detach(identity)
        if not self._store.attach(kronjob):
            taken = f'the identity "{identity}" is that of the KronJob {self._store.kronjobs[identity].place}'
            await self._report(kronjob, SpecProblem(INVALID, "IdentityTaken", taken))
            return
        problem = self._store.problems.get(identity)
        if problem is not None and problem.condition != INVALID:
            await self._report(kronjob, problem)
            return
        calendars = calendars_of(self._calendars.values()).get(kronjob.place.namespace, {})
        try:
            definition = definition_of(kronjob, calendars)
        except InvalidJobError as error:
            wrong = SpecProblem(INVALID, "InvalidDefinition", str(error))
            self._store.problems[identity] = wrong
            if identity in self._store.books:
                await self._store.touch(identity, now=self._now())
            else:
                await self._report(kronjob, wrong)
            return
        had_problem = self._store.problems.pop(identity, None) is not None
        await self._catalog.upsert([definition])
        await self._carry_out(kronjob)
        current = self._store.kronjobs.get(identity)
        if current is not None and (had_problem or _is_unobserved(current)):
            await self._store.touch(identity, now=self._now())

    async def _report(self, kronjob: KronJob, problem: SpecProblem) -> None:
        """Write a problem once, not each time the KronJob is seen."""
        conditions = kronjob.status.get("conditions") or ()
        if not any(
            each.get("type") == problem.condition
            and each.get("status") == "True"
            and each.get("message") == problem.message
            for each in conditions
        ):
            await self._store.report(kronjob, problem, now=self._now())

    async def _carry_out(self, kronjob: KronJob) -> None:
        """Pause, resume and run a job as its annotations request, each of them once."""
        identity = kronjob.identity
        book = self._store.books.get(identity)
        if book is None:
            return
        because, request = kronjob.annotations.get(PAUSED), kronjob.annotations.get(RUN_NOW)
        if because is not None and not book.job.paused:
            await self._catalog.pause(identity, because=because or "paused by annotation")
        elif because is None and book.pause is not None and book.job.paused:
            await self._catalog.resume(identity)
        if request is not None and request != book.request:
            with suppress(InvalidJobError):
                await self._catalog.run_now(identity, request)


def _asks_the_same(before: KronJob, after: KronJob) -> bool:
    """Say whether only the status of a KronJob changed."""
    return (before.uid, before.annotations, before.spec) == (after.uid, after.annotations, after.spec)


def _is_unobserved(kronjob: KronJob) -> bool:
    return kronjob.status.get("observedGeneration") != kronjob.generation


def _place(document: Document) -> ObjectName:
    metadata = document["metadata"]
    return ObjectName(metadata.get("namespace", "default"), metadata["name"])
