"""Pages of the audit, in the words of the API."""

import json

from kron.core.plan.query import AuditFilter
from kron.core.plan.record import AuditRecord
from kron.fronts.service.api.cursor import cursor_of, place_of
from kron.fronts.service.documents import Document, time_text
from kron.fronts.service.registrar import NAMESPACE, Registrar


async def audit_page(
    registrar: Registrar, wanted: AuditFilter, *, limit: int, cursor: str | None = None
) -> Document:
    """Return a page of the audit."""
    if any("\0" in text for text in (wanted.identity, wanted.who) if text is not None):
        return {"entries": [], "next_cursor": None}
    before = None if cursor is None else int(place_of(cursor, int)[0])
    found = await registrar.store.audits(NAMESPACE, wanted, before=before, limit=limit + 1)
    shown = found[:limit]
    place = [shown[-1].number] if len(found) > limit else None
    return {"entries": [_view(one.record) for one in shown], "next_cursor": cursor_of(place)}


def _view(record: AuditRecord) -> Document:
    return {
        "at": time_text(record.at),
        "who": record.who,
        "request_id": record.request_id,
        "action": record.action,
        "name": record.identity,
        "user_id": record.user_id,
        "before": None if record.before is None else json.loads(record.before),
        "after": None if record.after is None else json.loads(record.after),
    }
