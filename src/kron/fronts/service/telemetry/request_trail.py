"""The trail of a request: from the API, through the audit, to the log and to whoever executes the run."""

import json
from collections.abc import Iterable, Sequence

from kron.core.errors import StoreError
from kron.core.job.outcome import Reason
from kron.core.plan.query import Audited, AuditFilter
from kron.core.plan.record import RunRecord
from kron.fronts.service.auth.principal import present_request
from kron.fronts.service.registrar import NAMESPACE
from kron.ports import Launch, Store

# How many of the latest changes are looked through, and of how many runs is remembered who asked for them.
MAX_LOOKED, MAX_KNOWN = 1_000, 10_000


class RequestTrail:
    """Knows by which requests runs were asked for; a period was asked for by nobody."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str | None] = {}

    def request_of(self, run: RunRecord) -> str | None:
        """Return the id of the request that asked for a run, if there was one and it is known here."""
        return self._known.get(run.key) if run.reason is Reason.ASKED else None

    def on(self, launch: Launch) -> Launch:
        """Return a launch that says who asked for it."""
        request_id = self.request_of(launch.run)
        return launch if request_id is None else launch._replace(request_id=request_id)

    def begin(self, runs: Iterable[RunRecord]) -> None:
        """Note that the request under way asks for runs."""
        for run in runs:
            if run.reason is Reason.ASKED:
                self._remember(run, present_request())

    async def follow(self, runs: Iterable[RunRecord]) -> None:
        """Find out who asked for runs, where another process was told or this one has forgotten it."""
        asked = [run for run in runs if run.reason is Reason.ASKED and run.key not in self._known]
        if not asked:
            return
        names = {run.identity for run in asked}
        wanted = AuditFilter(identity=names.pop() if len(names) == 1 else None)
        try:
            found = await self._store.audits(NAMESPACE, wanted, limit=MAX_LOOKED)
        except StoreError:
            # The runs matter more than who asked for them.
            return
        changes = _Changes(found)
        for run in asked:
            self._remember(run, changes.request_of(run))

    def _remember(self, run: RunRecord, request_id: str | None) -> None:
        if len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[run.key] = request_id


class _Changes:
    """Changes by which runs were asked for."""

    def __init__(self, found: Sequence[Audited]) -> None:
        self._by_key: dict[str, str | None] = {}
        self._by_time: dict[tuple[str, int], str | None] = {}
        for _, record in found:
            if record.action in ("run", "backfill"):
                self._by_key |= dict.fromkeys(_keys_in(record.after), record.request_id)
                # Of many runs only the first are named; all of them were written at the same time.
                self._by_time[record.identity, record.at] = record.request_id

    def request_of(self, run: RunRecord) -> str | None:
        if run.key in self._by_key:
            return self._by_key[run.key]
        return self._by_time.get((run.identity, run.created_at))


def _keys_in(after: str | None) -> list[str]:
    """Return the keys of the runs that a change asked for."""
    document = json.loads(after or "{}")
    keys = document.get("idempotency_keys", []) if isinstance(document, dict) else []
    return keys if isinstance(keys, list) else []
