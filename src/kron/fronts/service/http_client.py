"""The client of a remote service over HTTP: the same operations, results and errors as the local one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from urllib.parse import quote, urlencode

from kron.core.errors import (
    BusyError,
    ConflictError,
    InputError,
    InvalidInstantError,
    InvalidOptionError,
    KronError,
    Problem,
    StoreError,
    UnknownRunError,
    restored,
)
from kron.core.plan.query import AuditFilter, JobFilter
from kron.core.redaction import redact_url
from kron.fronts.service.client import BackfillRange, PageRequest
from kron.fronts.service.definitions import ApplyRequest
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import (
    ChangedError,
    InvalidLinesError,
    InvalidScheduleError,
    UnknownScheduleError,
)
from kron.fronts.service.runs import Feedback, OutputRequest
from kron.launchers.http.client import HttpClient, request_of, target_of
from kron.launchers.http.response import Response

# How long the service may neither take nor send a byte; a batch of a bulk request takes the longest.
TIMEOUT_S = 120
MAX_RESPONSE = 256 << 20
# The errors of a service, by their codes.
KINDS: Mapping[str, type[KronError]] = {
    kind.code: kind
    for kind in (
        BusyError, ChangedError, ConflictError, InvalidInstantError, InvalidOptionError, InvalidScheduleError,
        StoreError, UnknownRunError, UnknownScheduleError,
    )
}  # fmt: skip
# The filters of a list of schedules that a query names.
FILTERS = ("search", "paused", "suspended", "workflow_id", "user_id", "tag", "applied_set")


class ServerError(KronError):
    """A service cannot be reached, or its response is not one of a service."""

    code = "server_error"

    def __init__(self, *, server: str, reason: str) -> None:
        super().__init__(f"The service at {server} cannot be used: {reason}", server=server, reason=reason)


class RemoteClient:
    """The client of a service at a URL, authenticated by a token."""

    def __init__(self, server: str, *, token: str | None = None) -> None:
        shown = redact_url(server)
        try:
            target = target_of(server)
        except ValueError as cause:
            reason = f"write http://HOST:PORT or https://HOST ({cause})"
            raise InvalidOptionError(option="server", value=shown, reason=reason) from cause
        if "?" in target.path or "#" in server:
            reason = "write http://HOST:PORT or https://HOST, without a query or a fragment"
            raise InvalidOptionError(option="server", value=shown, reason=reason)
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidOptionError(option="KRON_TOKEN", value="...", reason="it is not a token")
        self._server = shown
        self._target = target._replace(path=target.path.rstrip("/"), login=None)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    # --- operations ------------------------------------------------------------------------------

    async def upsert(
        self, document: Mapping[str, object], *, if_match: str | None = None, dry_run: bool = False
    ) -> Document:
        """Create a schedule or change it; with `if_match` "" only create. A dry run writes nothing."""
        headers = {"If-None-Match": "*"} if if_match == "" else _matching(if_match)
        path = "/schedules/upsert?dry_run=true" if dry_run else "/schedules/upsert"
        return await self._post(path, document, headers=headers)

    async def bulk(self, lines: bytes) -> Document:
        """Create or change a schedule for each JSON line, 1,000 at a time, whole batches only."""
        return await self._request("POST", "/schedules/bulk", lines, {"Content-Type": "application/x-ndjson"})

    async def pause(
        self,
        schedule_id: str,
        paused: bool,
        *,
        reason: str | None = None,
        until: str | None = None,
        if_match: str | None = None,
    ) -> Document:
        """Pause a schedule, with a reason and until an instant if they are given, or resume it."""
        options = {"reason": reason, "until": until}
        given = {name: value for name, value in options.items() if value is not None}
        document = {"schedule_id": schedule_id, "paused": paused, **given}
        return await self._post("/schedules/pause", document, headers=_matching(if_match))

    async def delete(self, schedule_id: str, *, if_match: str | None = None) -> None:
        """Delete a schedule."""
        await self._request("DELETE", _place(schedule_id), None, _matching(if_match))

    async def schedule(self, schedule_id: str) -> Document:
        """Return a schedule with its next fire times."""
        return await self._get(_place(schedule_id))

    async def schedules(self, wanted: JobFilter, page: PageRequest) -> Document:
        """Return schedules in the order of their names."""
        some = {name: getattr(wanted, name) for name in FILTERS}
        return await self._get("/schedules", some | page._asdict())

    async def definitions(self, wanted: JobFilter, page: PageRequest) -> Document:
        """Return schedules as jobs in a job file's words."""
        some = {name: getattr(wanted, name) for name in FILTERS}
        return await self._get("/definitions", some | page._asdict())

    async def apply(self, wanted: ApplyRequest) -> Document:
        """Make the schedules of a set equal its jobs, all or none."""
        document = {
            "jobs": list(wanted.jobs),
            "set": wanted.name,
            "prune": wanted.prune,
            "dry_run": wanted.dry_run,
            "if_match": dict(wanted.if_match or {}),
        }
        return await self._post("/definitions", document)

    async def preview_resume(self, schedule_id: str) -> Document:
        """Return what a resume would start now."""
        return await self._post(f"{_place(schedule_id)}/resume-preview")

    async def preview(self, document: Mapping[str, object], count: int) -> Document:
        """Return when a schedule would run that is not stored."""
        return await self._post(f"/preview?count={count}", document)

    async def run(self, schedule_id: str, request_id: str | None = None) -> Document:
        """Run a schedule now."""
        return await self._post(f"{_place(schedule_id)}/run", {"request_id": request_id})

    async def backfill(self, schedule_id: str, periods: BackfillRange) -> Document:
        """Run past periods."""
        fields = periods._asdict()
        document = {"from": fields.pop("start"), "to": fields.pop("end"), **fields}
        return await self._post(f"{_place(schedule_id)}/backfill", document)

    async def report(self, key: str, feedback: Feedback) -> Document:
        """Record an executor's report of a run."""
        return await self._post(f"/runs/{_part(key)}/status", asdict(feedback))

    async def runs(self, schedule_id: str, page: PageRequest) -> Document:
        """Return the runs of a schedule, newest first."""
        return await self._get(f"{_place(schedule_id)}/runs", page._asdict())

    async def latest(self, status: str | None, page: PageRequest) -> Document:
        """Return the runs of all schedules, the latest first."""
        return await self._get("/runs", {"status": status, **page._asdict()})

    async def period(self, schedule_id: str, period_id: str) -> Document:
        """Return the runs of one period with their earlier attempts."""
        return await self._get(f"{_place(schedule_id)}/periods/{_part(period_id)}/runs")

    async def logs(self, schedule_id: str, wanted: OutputRequest) -> Document:
        """Return a part of the output of a run."""
        return await self._get(f"{_place(schedule_id)}/output", wanted._asdict())

    async def why(self, schedule_id: str, period_id: str, changes: Sequence[str] = ()) -> Document:
        """Return the chain of facts behind a period, and what `changes` would have done."""
        query = f"?{urlencode([('if', change) for change in changes])}" if changes else ""
        return await self._get(f"{_place(schedule_id)}/periods/{_part(period_id)}/why{query}")

    async def audit(self, wanted: AuditFilter, page: PageRequest) -> Document:
        """Return the audited changes, the latest first."""
        return await self._get("/audit", {"name": wanted.identity, "who": wanted.who, **page._asdict()})

    async def workers(self) -> Document:
        """Return the workers with the shards they hold."""
        return await self._get("/workers")

    async def drain(self, worker: str, drain: bool) -> Document:
        """Ask a worker to start nothing more and to hand over its shards, or to work again."""
        return await self._post("/workers/drain", {"worker": worker, "drain": drain})

    # --- DAGs ------------------------------------------------------------------------------------

    async def dags(self, page: PageRequest) -> Document:
        """Return DAGs by name, with the counts of their runs."""
        return await self._get("/dags", page._asdict())

    async def dag(self, dag_id: str, version: int | None = None) -> Document:
        """Return a version of a DAG, by default the latest published one."""
        place = f"/workflows/{_part(dag_id)}"
        if version is not None:
            return await self._get(f"{place}/versions/{version}")
        for each in _objects(await self._get(place), "versions"):
            record = await self._get(f"{place}/versions/{each['version']}")
            dag = record.get("dag")
            if not (isinstance(dag, dict) and dag.get("draft") is True):
                return record
        raise InputError(f'The DAG "{dag_id}" has no published version')

    async def dag_runs(self, dag_id: str, status: str | None, page: PageRequest) -> Document:
        """Return the runs of a DAG, latest first."""
        return await self._get(f"/dags/{_part(dag_id)}/runs", {"status": status, **page._asdict()})

    async def dag_run(self, run_id: str) -> Document:
        """Return a run of a DAG with its tasks."""
        return await self._get(f"/dag-runs/{_part(run_id)}")

    async def dag_attempts(self, run_id: str, task_id: str | None = None) -> Document:
        """Return the attempts of a run, or of one of its tasks."""
        return await self._get(f"/dag-runs/{_part(run_id)}/attempts", {"task_id": task_id})

    async def start_dag(self, dag_id: str, document: Mapping[str, object]) -> Document:
        """Start the run of a logical date."""
        return await self._post(f"/dags/{_part(dag_id)}/runs", document)

    async def catch_up_dag(self, dag_id: str, document: Mapping[str, object]) -> Document:
        """Start a run for each slot of a range that has none."""
        return await self._post(f"/dags/{_part(dag_id)}/catchup", document)

    async def retry_dag(self, run_id: str, tasks: Sequence[str] = ()) -> Document:
        """Run tasks of a run again; without any, those that failed."""
        return await self._post(f"/dag-runs/{_part(run_id)}/retry", {"tasks": list(tasks)})

    async def cancel_dag(self, run_id: str) -> Document:
        """Cancel a run of a DAG."""
        return await self._post(f"/dag-runs/{_part(run_id)}/cancel")

    async def pause_dag(self, dag_id: str, *, paused: bool) -> Document:
        """Pause a DAG, or resume it."""
        return await self._post(f"/dags/{_part(dag_id)}/pause", {"paused": paused})

    async def health(self) -> Document:
        """Return the health of the store and the worker."""
        return self._document(await self._exchange("GET", "/readyz", None, {}))

    # --- HTTP ------------------------------------------------------------------------------------

    async def _get(self, path: str, query: Mapping[str, object] | None = None) -> Document:
        given = {name: _written(value) for name, value in (query or {}).items() if value is not None}
        return await self._request("GET", f"{path}?{urlencode(given)}" if given else path, None, {})

    async def _post(
        self,
        path: str,
        document: Mapping[str, object] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Document:
        body = b"" if document is None else json.dumps(document).encode()
        kind = {} if document is None else {"Content-Type": "application/json"}
        return await self._request("POST", path, body, {**kind, **(headers or {})})

    async def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Document:
        response = await self._exchange(method, path, body, headers)
        if response.status >= 300:
            raise self._error(response)
        return {} if response.status == HTTPStatus.NO_CONTENT else self._document(response)

    async def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        target = self._target._replace(path=self._target.path + path)
        client = HttpClient()
        try:
            request = request_of(method, target, {**self._headers, **headers}, body)
            response = await client.fetch(request, target, idle_s=TIMEOUT_S, max_body=MAX_RESPONSE)
        except (OSError, ValueError) as cause:
            raise ServerError(server=self._server, reason=str(cause) or type(cause).__name__) from cause
        if response.is_cut:
            raise ServerError(server=self._server, reason="its response is too long")
        return response

    def _document(self, response: Response) -> Document:
        try:
            document = json.loads(response.body)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ServerError(server=self._server, reason=f"it answers {response.status} and no JSON object")
        return document

    def _error(self, response: Response) -> KronError:
        """Return the error of a problem document."""
        document = self._document(response)
        code, detail = str(document.get("code")), str(document.get("detail"))
        if code == InvalidLinesError.code:
            return _invalid_lines(document)
        kind = KINDS.get(code)
        if kind is not None:
            further = {"problems": _problems(document)} if kind is InvalidScheduleError else {}
            return restored(kind, (detail,), {"details": document, **further})
        if response.status == HTTPStatus.UNAUTHORIZED:
            detail = f"{detail} (the command line takes a token from KRON_TOKEN)"
        if 400 <= response.status < 500 and "code" in document:
            return InputError(detail, **document)
        return ServerError(server=self._server, reason=f"it answers {response.status}: {detail}")


def _invalid_lines(document: Document) -> InvalidLinesError:
    errors = [
        (_number(each.get("line")), InputError(str(each.get("detail"))))
        for each in _objects(document, "lines")
    ]
    stored, count = _number(document.get("stored")), _number(document.get("wrong"))
    return InvalidLinesError(errors=errors, stored=stored, count=count)


def _problems(document: Document) -> tuple[Problem, ...]:
    return tuple(
        Problem(str(each.get("path")), each.get("value"), str(each.get("reason")))
        for each in _objects(document, "problems")
    )


def _objects(document: Document, name: str) -> list[Document]:
    found = document.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _matching(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}


def _place(schedule_id: str) -> str:
    return f"/schedules/{_part(schedule_id)}"


def _part(name: str) -> str:
    """Return a name as one segment of a path; dots are escaped, because "." and ".." are steps."""
    return quote(name, safe="", errors="replace").replace(".", "%2E")


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
