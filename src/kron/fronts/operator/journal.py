"""What the operator makes known: Events of KronJobs, counts for metrics, and lines of the decision log."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256

from kron.app.retention import COPY
from kron.core.plan.query import PRUNED_KINDS
from kron.core.plan.record import RangeRecord, Result, RunRecord
from kron.core.plan.step import Change, WriteResult
from kron.core.time.instant import rfc3339
from kron.fronts.operator.lease import micro_time
from kron.fronts.operator.resource import KronJob
from kron.launchers.kubernetes.api import (
    EVENTS,
    KRONJOBS,
    ApiClient,
    ApiError,
    ApiUnavailableError,
    Document,
)
from kron.ports import Clock, Journal

_log = logging.getLogger("kron.operator")
# Events that wait to be sent; older ones are dropped, for the decision log has all of them.
MAX_WAITING = 5_000
# Events sent at the same time; few, because in a burst they compete with the creation of Jobs.
SENDERS = 2
CONTROLLER = "kron.io/operator"
# The API server refuses an Event with a longer note, counted in bytes, or with a longer name or instance.
MAX_NOTE, MAX_NAME, MAX_INSTANCE = 1_024, 253, 128


class OperatorJournal:
    """Passes every commit on, counts it, and sends an Event for each outcome."""

    def __init__(
        self,
        api: ApiClient,
        clock: Clock,
        further: Journal,
        *,
        kronjob_of: Callable[[str], KronJob | None],
        ended: Callable[[str], None],
        instance: str,
    ) -> None:
        self._api = api
        self._clock = clock
        self._further = further
        self._kronjob_of = kronjob_of
        self._ended = ended
        self._instance = instance
        self._waiting: deque[tuple[str, Document]] = deque(maxlen=MAX_WAITING)
        self._has_some = asyncio.Event()
        self._senders: list[asyncio.Task[None]] = []
        self.outcomes: Counter[tuple[str, str]] = Counter()
        # Old records removed from the history, by kind.
        self.pruned: Counter[str] = Counter(dict.fromkeys(PRUNED_KINDS, 0))

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Pass one event of the engine on; that a record is refused is an Event of its KronJob."""
        self._further.note(event, fields)
        if event == "pruned" and fields.get("store") == COPY:
            counts = {kind: fields.get(kind, 0) for kind in PRUNED_KINDS}
            self.pruned.update({kind: count for kind, count in counts.items() if isinstance(count, int)})
        kronjob = self._kronjob_of(str(fields.get("schedule_id")))
        if event == "record_refused" and kronjob is not None:
            at = micro_time(self._clock.now())
            self._put(kronjob, "RecordRefused", str(fields.get("error")), True, at)

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Send an Event for each period that started, was dropped or ended."""
        self._further.settled(changes, settled, now)
        for change in changes:
            identity = change.job.identity
            if identity in settled.stale_jobs:
                continue
            kronjob = self._kronjob_of(identity)
            for reason, note, is_bad, subject in _entries(change):
                self.outcomes[reason, subject[1]] += 1
                if kronjob is not None:
                    self._put(kronjob, reason, note, is_bad, subject[0])
            if change.ended:
                self._ended(identity)

    def _put(self, kronjob: KronJob, reason: str, note: str, is_bad: bool, subject: str) -> None:
        digest = sha256(f"{kronjob.uid}\n{subject}\n{reason}".encode()).hexdigest()[:16]
        namespace, name = kronjob.place
        event: Document = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"namespace": namespace, "name": _event_name(name, digest)},
            "eventTime": micro_time(self._clock.now()),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance[:MAX_INSTANCE],
            "action": "Schedule",
            "reason": reason,
            "type": "Warning" if is_bad else "Normal",
            "note": note.encode()[:MAX_NOTE].decode(errors="ignore"),
            "regarding": {
                "apiVersion": KRONJOBS.api_version,
                "kind": KRONJOBS.kind,
                "namespace": namespace,
                "name": name,
                "uid": kronjob.uid,
            },
        }
        self._waiting.append((namespace, event))
        self._has_some.set()

    def start(self) -> None:
        """Send Events until `stop`."""
        if not self._senders:
            self._senders = [asyncio.create_task(self._send()) for _ in range(SENDERS)]

    async def _send(self) -> None:
        while True:
            await self._has_some.wait()
            if not self._waiting:
                self._has_some.clear()
                continue
            namespace, event = self._waiting.popleft()
            try:
                await self._api.create(EVENTS, namespace, event)
            except (ApiError, ApiUnavailableError) as error:
                if not (isinstance(error, ApiError) and error.reason == "AlreadyExists"):
                    _log.info("an Event of %s is dropped: %s", event["regarding"]["name"], error)

    def kill(self) -> None:
        """Stop at once."""
        for task in self._senders:
            task.cancel()
        self._senders = []


def _event_name(name: str, digest: str) -> str:
    """Return the name of an Event: that of its KronJob, shortened if it has to be, and a digest."""
    start = name[: MAX_NAME - len(digest) - 1].rstrip("-.")
    return f"{start}.{digest}"


Entry = tuple[str, str, bool, tuple[str, str]]


def _entries(change: Change) -> Iterator[Entry]:
    """Yield the reason, the note and the weight of each Event of a change, with its key and reason code."""
    started = {run.key for run in change.starts}
    for run in change.starts:
        note = f"{rfc3339(run.nominal_time)}: {run.reason.sentence}"
        yield "Started", note, False, (f"{run.key}/{run.attempt}", run.reason)
    for run in (*change.inserts, *change.updates):
        if run.is_open or run.key in started:
            continue
        yield _end(run)
    for dropped in change.ranges:
        yield _range(dropped)


def _end(run: RunRecord) -> Entry:
    subject = f"{run.key}/{run.attempt}"
    if run.result is not None:
        is_bad = run.result not in (Result.SUCCESS, Result.REPLACED, Result.CANCELLED)
        error = f": {run.error}" if run.error and is_bad else ""
        reason = "Succeeded" if run.result is Result.SUCCESS else "Ended" if not is_bad else "Failed"
        return reason, f"{rfc3339(run.nominal_time)}: {run.result}{error}", is_bad, (subject, run.result)
    note = f"{rfc3339(run.nominal_time)}: {run.reason.sentence}"
    return str(run.outcome or "cancelled").capitalize(), note, True, (subject, run.reason)


def _range(dropped: RangeRecord) -> Entry:
    note = f"{dropped.periods} periods from {rfc3339(dropped.first)} to {rfc3339(dropped.last)}"
    subject = f"{dropped.identity}/{dropped.first}/{dropped.last}"
    reason = str(dropped.outcome).capitalize()
    return reason, f"{note}: {dropped.reason.sentence}", True, (subject, dropped.reason)
