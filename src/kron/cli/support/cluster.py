"""The client of a cluster: reads the records of KronJobs, and annotates them to run, pause and resume."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from getpass import getuser
from typing import NoReturn

from kron.clocks.system import SystemClock
from kron.core.errors import InputError, InvalidOptionError, StoreUnavailableError
from kron.core.plan.record import RunKind, request_key_of
from kron.fronts.operator.lease import LeaderLease
from kron.fronts.operator.operator import LEASE_NAME
from kron.fronts.operator.resource import LAUNCHER_KIND, PAUSED, RUN_NOW, KronJob, kronjob_of
from kron.fronts.operator.store import NAMESPACE, KubernetesStore
from kron.fronts.service.auth.principal import EVERYTHING, Caller, acting_as
from kron.fronts.service.client import BackfillRange, LocalClient
from kron.fronts.service.definitions import ApplyRequest
from kron.fronts.service.documents import run_view
from kron.fronts.service.errors import UnknownScheduleError
from kron.fronts.service.registrar import Registrar, new_name
from kron.fronts.service.responses import View
from kron.fronts.service.runs import Feedback
from kron.fronts.service.settings import read_settings
from kron.launchers.kubernetes.access import find_access
from kron.launchers.kubernetes.api import KRONJOBS, ApiClient, ApiError, ApiUnavailableError
from kron.launchers.kubernetes.spec import TRAITS

# How long a command waits until an operator has recorded its request, and how often it looks, in seconds.
WAIT_S, LOOK_S = 5.0, 0.2
BY_KUBECTL = "a KronJob is changed with kubectl; its cluster answers status, runs, why, run, pause and resume"


@asynccontextmanager
async def open_cluster(context: str | None) -> AsyncIterator["ClusterClient"]:
    """Read the KronJobs of a cluster: that of the pod, of the kubeconfig, or of a context of it."""
    api, clock = ApiClient(find_access(context=context)), SystemClock()
    lease = LeaderLease(
        api, clock, namespace=api.access.namespace, name=LEASE_NAME, duration=timedelta(seconds=15)
    )
    store = KubernetesStore(api, lease, traits={LAUNCHER_KIND: TRAITS})
    try:
        await store.read()
        with acting_as(Caller(f"cli:{getuser()}", EVERYTHING, None)):
            yield ClusterClient(api, store, Registrar(store, clock, namespace=NAMESPACE))
    finally:
        await store.close()
        api.close()
        await asyncio.sleep(0)


class ClusterClient(LocalClient):
    """The verbs of a service for the KronJobs of a cluster; definitions are changed with kubectl."""

    def __init__(self, api: ApiClient, store: KubernetesStore, registrar: Registrar) -> None:
        super().__init__(registrar, read_settings({}, {}).settings)
        self._api = api
        self._store = store
        self.upsert = self.delete = _refuse

    async def run(self, schedule_id: str, request_id: str | None = None) -> View:  # type: ignore[override]
        """Request a run by an annotation, and wait a moment until an operator has recorded it."""
        kronjob = self._kronjob(schedule_id)
        request = request_id or new_name()
        await self._annotate(kronjob, {RUN_NOW: request})
        key = request_key_of(kronjob.identity, RunKind.MANUAL, request)
        if await self._observed(kronjob, lambda seen: seen.status.get("runRequest") == request):
            for run in await self._store.find_runs(NAMESPACE, [key]):
                return {**run_view(run, self._registrar.now()), "request_id": request, "note": None}
        return {"status": "requested", "idempotency_key": key, "request_id": request, "note": None}

    async def pause(  # type: ignore[override]
        self,
        schedule_id: str,
        paused: bool,
        *,
        reason: str | None = None,
        until: str | None = None,
        if_match: str | None = None,
    ) -> View:
        """Pause a KronJob by an annotation, or remove it; a pause has no end of its own."""
        if until is not None:
            raise InvalidOptionError(
                option="--until", value=until, reason="a KronJob is paused until it is resumed"
            )
        kronjob = self._kronjob(schedule_id)
        await self._annotate(kronjob, {PAUSED: (reason or "paused") if paused else None})
        is_seen = await self._observed(kronjob, lambda seen: ("paused" in seen.status) is paused)
        schedule = await self.schedule(kronjob.identity)
        return schedule if is_seen else {**schedule, "note": "requested; no operator has recorded it yet"}

    def _kronjob(self, name: str) -> KronJob:
        """Return a KronJob by its identity, or by `<namespace>/<name>`."""
        known = self._store.kronjobs
        found = known.get(name) or next((each for each in known.values() if str(each.place) == name), None)
        if found is None:
            raise UnknownScheduleError(schedule_id=name)
        return found

    async def _annotate(self, kronjob: KronJob, notes: Mapping[str, str | None]) -> None:
        try:
            await self._api.patch(KRONJOBS, *kronjob.place, {"metadata": {"annotations": dict(notes)}})
        except (ApiError, ApiUnavailableError) as error:
            raise StoreUnavailableError(f"The cluster refuses the request: {error}", cause=error) from error

    async def _observed(self, kronjob: KronJob, is_so: Callable[[KronJob], bool]) -> bool:
        """Wait a moment until the status of a KronJob says something; then its record is read again."""
        for _ in range(round(WAIT_S / LOOK_S)):
            try:
                seen = kronjob_of(await self._api.get(KRONJOBS, *kronjob.place))
            except (ApiError, ApiUnavailableError):
                return False
            if is_so(seen):
                await self._store.read_again(seen)
                return True
            await asyncio.sleep(LOOK_S)
        return False

    async def bulk(self, lines: bytes) -> NoReturn:
        """Refuse."""
        raise InputError(BY_KUBECTL)

    async def apply(self, wanted: ApplyRequest) -> NoReturn:
        """Refuse."""
        raise InputError(BY_KUBECTL)

    async def backfill(self, schedule_id: str, periods: BackfillRange) -> NoReturn:
        """Refuse."""
        raise InputError(BY_KUBECTL)

    async def report(self, key: str, feedback: Feedback) -> NoReturn:
        """Refuse."""
        raise InputError(BY_KUBECTL)


async def _refuse(*_: object, **__: object) -> NoReturn:
    raise InputError(BY_KUBECTL)
