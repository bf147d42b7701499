"""The trail of a request: from the API, through the audit, to whoever executes the run it asked for."""

import json
from collections.abc import Awaitable, Callable

from kron.core.errors import StoreError
from kron.core.outcome import Reason
from kron.fronts.service.registrar import NAMESPACE
from kron.ports import AuditFilter, Launch, Store

# How many of the latest changes of a schedule are looked through.
MAX_LOOKED = 100


def request_of(store: Store) -> Callable[[Launch], Awaitable[str | None]]:
    """Return what finds the id of the request that asked for a run; a period was asked for by nobody."""

    async def find(launch: Launch) -> str | None:
        run = launch.run
        if run.reason is not Reason.ASKED:
            return None
        try:
            wanted = AuditFilter(identity=run.identity)
            found = await store.audits(NAMESPACE, wanted, limit=MAX_LOOKED)
        except StoreError:
            # The run matters more than who asked for it.
            return None
        return next(
            (each.record.request_id for each in found if run.key in _keys_in(each.record.after)), None
        )

    return find


def _keys_in(after: str | None) -> list[str]:
    """Return the keys of the runs that a change asked for."""
    document = json.loads(after or "{}")
    keys = document.get("idempotency_keys", []) if isinstance(document, dict) else []
    return keys if isinstance(keys, list) else []
