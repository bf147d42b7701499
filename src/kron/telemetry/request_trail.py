"""The trail of a request: from the API, through the audit, to the log and to the executor of the run."""

import json
from collections.abc import Callable, Iterable, Sequence

from kron.core.errors import StoreError
from kron.core.job.outcome import Reason
from kron.core.plan.query import Audited, AuditFilter
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch
from kron.ports import ReadStore

# How many of the latest audit entries are searched, and for how many runs the request is remembered.
MAX_SEARCHED, MAX_KNOWN = 1_000, 10_000
# Returns the id of the request being handled, if there is one.
CurrentRequest = Callable[[], str | None]


def no_request() -> str | None:
    """Return None, in processes that handle no requests."""
    return None


class RequestTrail:
    """Maps manual runs to the requests that created them; a scheduled period has no request."""

    def __init__(
        self, store: ReadStore, namespace: str, current_request: CurrentRequest = no_request
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._current_request = current_request
        self._known: dict[str, str | None] = {}

    def request_of(self, run: RunRecord) -> str | None:
        """Return the id of the request that created a run, if there was one and it is known here."""
        return self._known.get(run.key) if run.reason is Reason.ASKED else None

    def on(self, launch: Launch) -> Launch:
        """Return a launch with the request that created its run."""
        request_id = self.request_of(launch.run)
        return launch if request_id is None else launch._replace(request_id=request_id)

    def begin(self, runs: Iterable[RunRecord]) -> None:
        """Note that the current request creates runs."""
        for run in runs:
            if run.reason is Reason.ASKED:
                self._remember(run, self._current_request())

    async def follow(self, runs: Iterable[RunRecord]) -> None:
        """Look up the requests of runs in the audit, where another process created them."""
        unknown = [run for run in runs if run.reason is Reason.ASKED and run.key not in self._known]
        if not unknown:
            return
        names = {run.identity for run in unknown}
        wanted = AuditFilter(identity=names.pop() if len(names) == 1 else None)
        try:
            entries = await self._store.audits(self._namespace, wanted, limit=MAX_SEARCHED)
        except StoreError:
            # The runs matter more than their requests.
            return
        changes = _Changes(entries)
        for run in unknown:
            self._remember(run, changes.request_of(run))

    def _remember(self, run: RunRecord, request_id: str | None) -> None:
        if len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[run.key] = request_id


class _Changes:
    """Audit entries that created runs."""

    def __init__(self, entries: Sequence[Audited]) -> None:
        self._by_key: dict[str, str | None] = {}
        self._by_time: dict[tuple[str, int], str | None] = {}
        for _, record in entries:
            if record.action in ("run", "backfill"):
                self._by_key |= dict.fromkeys(_keys_in(record.after), record.request_id)
                # Of many runs only the first are named; all of them were written at the same time.
                self._by_time[record.identity, record.at] = record.request_id

    def request_of(self, run: RunRecord) -> str | None:
        if run.key in self._by_key:
            return self._by_key[run.key]
        return self._by_time.get((run.identity, run.created_at))


def _keys_in(after: str | None) -> list[str]:
    """Return the keys of the runs that a change created."""
    document = json.loads(after or "{}")
    keys = document.get("idempotency_keys", []) if isinstance(document, dict) else []
    return keys if isinstance(keys, list) else []
