"""The DAGs that a command works on: those of a store, or of a service at a URL, as the same documents."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from kron.app.dag.view import View, attempt_view, run_view, state_view, summary_view
from kron.cli.support.client import check_store_exists, default_server, remote_client, socket_of
from kron.core.errors import InvalidOptionError
from kron.core.time.instant import instant_text
from kron.fronts.dag.runtime import DagRuntime
from kron.fronts.service.client import PageRequest
from kron.fronts.service.settings import read_settings

if TYPE_CHECKING:
    from kron.fronts.service.http_client import RemoteClient

T = TypeVar("T")
# Entries that one request to a service lists, slots that one starts, and slots of one dry run.
PAGE, CHUNK, DRY_CHUNK = 100, 100, 1_000
DagServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Service to use: http://127.0.0.1:8080 (or KRON_SERVER, with KRON_TOKEN).",
    ),
]


class DagClient(Protocol):
    """Reads and changes DAGs and their runs."""

    # How many slots of a catch-up are started at once.
    chunk: int

    async def dags(self) -> list[View]:
        """Return the DAGs with the counts of their runs."""
        ...

    async def definition(self, dag_id: str, version: int | None) -> View:
        """Return a published version of a DAG: `version`, `created_at` and `dag`."""
        ...

    async def runs(self, dag_id: str | None, status: str | None, limit: int) -> list[View]:
        """Return runs, latest first."""
        ...

    async def state(self, run_id: str) -> View:
        """Return a run with its tasks."""
        ...

    async def attempts(self, run_id: str, task_id: str | None) -> list[View]:
        """Return the attempts of a run, or of one of its tasks."""
        ...

    async def start(self, dag_id: str, document: Mapping[str, Any]) -> View:
        """Start a run: `logical_date`, `version`, `input` and `rerun_key`."""
        ...

    async def catch_up(self, dag_id: str, slots: range, document: Mapping[str, Any]) -> int:
        """Start the runs of slots that have none: `version` and `input`; return how many were started."""
        ...

    async def slot_runs(self, dag_id: str, slots: range) -> dict[str, str]:
        """Return the states of the runs that slots have, by logical date."""
        ...

    async def retry(self, run_id: str, tasks: Sequence[str]) -> View:
        """Run tasks again with all that depend on them; without any, those that failed."""
        ...

    async def cancel(self, run_id: str) -> View:
        """Cancel a run."""
        ...

    async def pause(self, dag_id: str, *, paused: bool) -> None:
        """Pause a DAG, or resume it."""
        ...


def dag_call(server: str | None, store: str | None, work: Callable[[DagClient], Awaitable[T]]) -> T:
    """Return the result of work on the DAGs that the options or the environment name."""
    url = _server_url(server, store)

    async def called() -> T:
        if url is not None:
            return await work(ServerDags(remote_client(url)))
        store_url = store_url_of(store)
        check_store_exists(store_url)
        async with DagRuntime(store_url) as runtime:
            return await work(StoreDags(runtime))

    return asyncio.run(called())


def store_url_of(store: str | None) -> str:
    """Return the URL of the store of DAGs: that of the option, or else that of the settings."""
    return read_settings(os.environ, {"store": store}).settings.store_url


def _server_url(server: str | None, store: str | None) -> str | None:
    if server is not None and store is not None:
        raise InvalidOptionError(option="--store", value="...", reason="use --server or --store, not both")
    url = server or (None if store else default_server())
    if url is not None and socket_of(url) is not None:
        reason = "krond runs no DAGs; name the URL of a service, or a store"
        raise InvalidOptionError(option="--server", value=url, reason=reason)
    return url


class StoreDags:
    """The DAGs of a store."""

    chunk = 1

    def __init__(self, runtime: DagRuntime) -> None:
        self._orchestrator = runtime.orchestrator
        self._store = runtime.store

    async def dags(self) -> list[View]:
        """Return the DAGs that have runs or are paused."""
        return [summary_view(each) for each in await self._store.summaries()]

    async def definition(self, dag_id: str, version: int | None) -> View:
        """Return a published version of a DAG."""
        record = await self._orchestrator.definition(dag_id, version)
        created = instant_text(record.created_at)
        return {"version": record.version, "created_at": created, "dag": record.document()}

    async def runs(self, dag_id: str | None, status: str | None, limit: int) -> list[View]:
        """Return runs, latest first."""
        runs = await self._store.runs(dag_id=dag_id, status=status, limit=limit)
        return [run_view(run) for run in runs]

    async def state(self, run_id: str) -> View:
        """Return a run with its tasks."""
        return state_view(await self._orchestrator.state(run_id))

    async def attempts(self, run_id: str, task_id: str | None) -> list[View]:
        """Return the attempts of a run, or of one of its tasks."""
        return [attempt_view(each) for each in await self._store.attempts(run_id, task_id)]

    async def start(self, dag_id: str, document: Mapping[str, Any]) -> View:
        """Start a run."""
        started = await self._orchestrator.start_run(dag_id=dag_id, **document)
        fields = ("run_id", "run_key", "dag_id", "version", "logical_date", "status", "created")
        return {name: getattr(started, name) for name in fields}

    async def catch_up(self, dag_id: str, slots: range, document: Mapping[str, Any]) -> int:
        """Start the runs of slots that have none."""
        created = 0
        for slot in slots:
            fields = {**document, "trigger": "scheduled", "logical_date": instant_text(slot)}
            created += (await self._orchestrator.start_run(dag_id=dag_id, **fields)).created
        return created

    async def slot_runs(self, dag_id: str, slots: range) -> dict[str, str]:
        """Return the states of the runs that slots have, by logical date."""
        runs = await self._orchestrator.slot_runs(dag_id, slots)
        return {instant_text(run.logical_date): run.status.value for run in runs}

    async def retry(self, run_id: str, tasks: Sequence[str]) -> View:
        """Run tasks again with all that depend on them."""
        await (self._orchestrator.clear(run_id, tasks) if tasks else self._orchestrator.retry(run_id))
        return await self.state(run_id)

    async def cancel(self, run_id: str) -> View:
        """Cancel a run."""
        await self._orchestrator.cancel(run_id)
        return await self.state(run_id)

    async def pause(self, dag_id: str, *, paused: bool) -> None:
        """Pause a DAG that has a version, or resume it."""
        await self._orchestrator.definition(dag_id, None)
        await self._store.set_paused(dag_id, paused=paused)


class ServerDags:
    """The DAGs of a service."""

    chunk = CHUNK

    def __init__(self, client: "RemoteClient") -> None:
        self._client = client

    async def dags(self) -> list[View]:
        """Return the DAGs of the caller's tenants."""
        views, cursor = list[View](), None
        while True:
            page: dict[str, Any] = await self._client.dags(PageRequest(PAGE, cursor))
            views += page["dags"]
            cursor = page["cursor"]
            if cursor is None:
                return views

    async def definition(self, dag_id: str, version: int | None) -> View:
        """Return a published version of a DAG."""
        return await self._client.dag(dag_id, version)

    async def runs(self, dag_id: str | None, status: str | None, limit: int) -> list[View]:
        """Return the runs of a DAG, latest first."""
        if dag_id is None:
            raise InvalidOptionError(option="DAG", value=None, reason="a service lists the runs of one DAG")
        views, cursor = list[View](), None
        while len(views) < limit:
            page: dict[str, Any] = await self._client.dag_runs(
                dag_id, status, PageRequest(min(PAGE, limit - len(views)), cursor)
            )
            views += page["runs"]
            cursor = page["cursor"]
            if cursor is None:
                break
        return views

    async def state(self, run_id: str) -> View:
        """Return a run with its tasks."""
        return await self._client.dag_run(run_id)

    async def attempts(self, run_id: str, task_id: str | None) -> list[View]:
        """Return the attempts of a run, or of one of its tasks."""
        answer: dict[str, Any] = await self._client.dag_attempts(run_id, task_id)
        views: list[View] = answer["attempts"]
        return views

    async def start(self, dag_id: str, document: Mapping[str, Any]) -> View:
        """Start a run."""
        return await self._client.start_dag(dag_id, document)

    async def catch_up(self, dag_id: str, slots: range, document: Mapping[str, Any]) -> int:
        """Start the runs of slots that have none, in one request."""
        receipt: dict[str, Any] = await self._client.catch_up_dag(dag_id, {**document, **_range_of(slots)})
        return sum(run["created"] for run in receipt["started_runs"])

    async def slot_runs(self, dag_id: str, slots: range) -> dict[str, str]:
        """Return the states of the runs that slots have, by logical date, with dry runs."""
        found: dict[str, str] = {}
        for first in range(0, len(slots), DRY_CHUNK):
            document = {**_range_of(slots[first : first + DRY_CHUNK]), "dry_run": True}
            receipt: dict[str, Any] = await self._client.catch_up_dag(dag_id, document)
            found |= {run["logical_date"]: run["status"] for run in receipt["existing_runs"]}
        return found

    async def retry(self, run_id: str, tasks: Sequence[str]) -> View:
        """Run tasks again with all that depend on them."""
        return await self._client.retry_dag(run_id, tasks)

    async def cancel(self, run_id: str) -> View:
        """Cancel a run."""
        return await self._client.cancel_dag(run_id)

    async def pause(self, dag_id: str, *, paused: bool) -> None:
        """Pause a DAG, or resume it."""
        await self._client.pause_dag(dag_id, paused=paused)


def _range_of(slots: range) -> dict[str, object]:
    """Return slots as the fields of a request to catch up."""
    return {
        "range_start_logical_date": instant_text(slots[0]),
        "range_end_logical_date": instant_text(slots[-1]),
        "slot_interval_ms": slots.step,
        "max_slots": len(slots),
    }
