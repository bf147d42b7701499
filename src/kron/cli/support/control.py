"""Both ends of krond's control socket: the client of the commands, and the handler in the daemon.

A request is a verb of the service's client with its arguments, or one of krond's own.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kron.app.notify.sender import NotifyOptions
from kron.core.errors import InputError, KronError, Problem, restored
from kron.core.plan.query import AuditFilter, JobFilter
from kron.fronts.daemon.control import Handler
from kron.fronts.daemon.daemon import NAMESPACE, Daemon
from kron.fronts.daemon.place import connected_socket
from kron.fronts.service.auth.principal import EVERYTHING, Caller, acting_as
from kron.fronts.service.client import BackfillRange, LocalClient, PageRequest
from kron.fronts.service.definitions import ApplyRequest
from kron.fronts.service.documents import Document
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.runs import Feedback, OutputRequest
from kron.fronts.service.schedule_spec import Rules
from kron.fronts.service.settings import read_settings
from kron.launchers.process.spec import ProcessOptions
from kron.launchers.spec import LauncherConfig
from kron.ports import Clock, Store

# The arguments of verbs that are not plain values.
KINDS: Mapping[str, tuple[type | None, ...]] = {
    "schedules": (JobFilter, PageRequest),
    "definitions": (JobFilter, PageRequest),
    "apply": (ApplyRequest,),
    "backfill": (None, BackfillRange),
    "report": (None, Feedback),
    "runs": (None, PageRequest),
    "latest": (None, PageRequest),
    "audit": (AuditFilter, PageRequest),
}
VERBS = frozenset(
    {
        *KINDS, "upsert", "bulk", "pause", "delete", "schedule", "preview_resume", "preview", "run", "period",
        "why", "health",
    }
)  # fmt: skip


# --- in the daemon -------------------------------------------------------------------------------------


def registrar_of(
    store: Store, clock: Clock, notify: NotifyOptions, wake: Callable[[int | None], None] = lambda _: None
) -> Registrar:
    """Return the registrar of a krond's jobs; without `wake`, its worker notices writes in the store."""
    rules = Rules(
        launchers=LauncherConfig((ProcessOptions(supervised=True),)),
        channels=dict.fromkeys(notify.channels),
        notify=notify.default,
    )
    return Registrar(store, clock, rules=rules, wake=wake, namespace=NAMESPACE)


def handler_of(daemon: Daemon) -> Handler:
    """Return what answers the requests to a daemon."""
    settings = read_settings({}, {}).settings
    registrar = registrar_of(daemon.store, daemon.clock, daemon.options.notify, daemon.worker.call)

    async def worker_status() -> tuple[str | None, str | None]:
        return daemon.worker.state, daemon.worker.error

    client = LocalClient(registrar, settings, worker_status=worker_status, outputs=daemon.outputs)

    async def handle(caller: str, request: Mapping[str, object]) -> object:
        verb, arguments = str(request.get("verb")), request.get("arguments", [])
        options = request.get("options", {})
        if not isinstance(arguments, list) or not isinstance(options, dict):
            raise InputError("arguments must be a list, options an object")
        if verb == "logs":
            name, period = [*arguments, None, None][:2]
            wanted = OutputRequest(None if period is None else str(period), **options)
            return await client.logs(str(name), wanted)
        if verb == "metrics":
            return None if daemon.metrics is None else (await daemon.metrics.scrape()).decode()
        if verb not in VERBS:
            raise InputError(f'unknown verb "{verb}"')
        kinds = KINDS.get(verb, ())
        values = [
            value if kind is None else kind(*value)
            for value, kind in zip(arguments, (*kinds, *[None] * len(arguments)), strict=False)
        ]
        with acting_as(Caller(f"krond:{caller}", EVERYTHING, None)):
            return await getattr(client, verb)(*values, **options)

    return handle


# --- in the commands -----------------------------------------------------------------------------------


class ControlError(KronError):
    """A krond cannot be reached."""

    code = "control_error"

    def __init__(self, *, socket: str, reason: str) -> None:
        super().__init__(f"krond cannot be reached at {socket}: {reason}", socket=socket, reason=reason)


class ControlClient:
    """The client of a krond on this host: the same verbs, results and errors as of a service."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def call(self, verb: str, *arguments: object, **options: object) -> Any:
        """Send a request, and return its result or raise its error."""
        request = json.dumps({"verb": verb, "arguments": arguments, "options": options}, default=_plain)
        try:
            answer = json.loads(await asyncio.to_thread(self._exchange, request.encode() + b"\n"))
        except (OSError, ValueError) as cause:
            raise ControlError(socket=str(self._socket), reason=_reason_of(cause)) from cause
        if "error" in answer:
            raise _error_of(answer["error"])
        return answer["result"]

    def _exchange(self, request: bytes) -> bytes:
        with connected_socket(self._socket) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as answers:
                return answers.readline()

    async def upsert(
        self, document: Mapping[str, object], *, if_match: str | None = None, dry_run: bool = False
    ) -> Document:
        """Create a schedule or change it; with `if_match` "" only create. A dry run writes nothing."""
        return dict(await self.call("upsert", document, if_match=if_match, dry_run=dry_run))

    async def bulk(self, lines: bytes) -> Document:
        """Refuse: job files and `kron apply` are for many schedules at once."""
        raise InputError("krond has no bulk load: use job files or kron apply")

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
        options = {"reason": reason, "until": until, "if_match": if_match}
        return dict(await self.call("pause", schedule_id, paused, **options))

    async def delete(self, schedule_id: str, *, if_match: str | None = None) -> None:
        """Delete a schedule."""
        await self.call("delete", schedule_id, if_match=if_match)

    async def schedule(self, schedule_id: str) -> Document:
        """Return a schedule with its next fire times."""
        return dict(await self.call("schedule", schedule_id))

    async def schedules(self, wanted: JobFilter, page: PageRequest) -> Document:
        """Return schedules in the order of their names."""
        return dict(await self.call("schedules", wanted, page))

    async def definitions(self, wanted: JobFilter, page: PageRequest) -> Document:
        """Return schedules as jobs in a job file's words."""
        return dict(await self.call("definitions", wanted, page))

    async def apply(self, wanted: ApplyRequest) -> Document:
        """Make the schedules of a set equal its jobs, all or none."""
        return dict(await self.call("apply", wanted))

    async def preview_resume(self, schedule_id: str) -> Document:
        """Return what a resume would start now."""
        return dict(await self.call("preview_resume", schedule_id))

    async def preview(self, document: Mapping[str, object], count: int) -> Document:
        """Return when a schedule would run that is not stored."""
        return dict(await self.call("preview", document, count))

    async def run(self, schedule_id: str, request_id: str | None = None) -> Document:
        """Run a schedule now."""
        return dict(await self.call("run", schedule_id, request_id))

    async def backfill(self, schedule_id: str, periods: BackfillRange) -> Document:
        """Run past periods."""
        return dict(await self.call("backfill", schedule_id, periods))

    async def report(self, key: str, feedback: Feedback) -> Document:
        """Record an executor's report of a run."""
        return dict(await self.call("report", key, list(asdict(feedback).values())))

    async def runs(self, schedule_id: str, page: PageRequest) -> Document:
        """Return the runs of a schedule, newest first."""
        return dict(await self.call("runs", schedule_id, page))

    async def latest(self, status: str | None, page: PageRequest) -> Document:
        """Return the runs of all schedules, the latest first."""
        return dict(await self.call("latest", status, page))

    async def period(self, schedule_id: str, period_id: str) -> Document:
        """Return the runs of one period with their earlier attempts."""
        return dict(await self.call("period", schedule_id, period_id))

    async def why(self, schedule_id: str, period_id: str, changes: Sequence[str] = ()) -> Document:
        """Return the chain of facts behind a period, and what `changes` would have done."""
        return dict(await self.call("why", schedule_id, period_id, list(changes)))

    async def logs(self, schedule_id: str, wanted: OutputRequest) -> Document:
        """Return a part of the output of a run."""
        options = {"key": wanted.key, "attempt": wanted.attempt, "offset": wanted.offset}
        return dict(await self.call("logs", schedule_id, wanted.period, **options))

    async def workers(self) -> Document:
        """Refuse: krond is its only worker."""
        raise InputError("krond is the only worker of its jobs: systemctl status krond shows it")

    async def drain(self, worker: str, drain: bool) -> Document:
        """Refuse: krond is its only worker."""
        raise InputError("krond is the only worker of its jobs: stop it to start nothing more")

    async def audit(self, wanted: AuditFilter, page: PageRequest) -> Document:
        """Return the audit log, latest entry first."""
        return dict(await self.call("audit", wanted, page))

    async def health(self) -> Document:
        """Return the health of the store and the worker."""
        return dict(await self.call("health"))


def _reason_of(cause: Exception) -> str:
    """Return why krond does not answer, with the remedy where it does not run."""
    if isinstance(cause, FileNotFoundError | ConnectionRefusedError):
        return "it does not run there; start krond, or name its socket with --server unix:PATH"
    return str(cause) or type(cause).__name__


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _error_of(document: Mapping[str, Any]) -> KronError:
    """Return the error of an answer."""
    from kron.fronts.service.http_client import KINDS as ERRORS

    kind = ERRORS.get(str(document["code"]), InputError)
    problems = [Problem(str(path), value, str(reason)) for path, value, reason in document["problems"]]
    further = {"problems": problems} if problems else {}
    return restored(kind, (document["message"],), {"details": document["details"], **further})
