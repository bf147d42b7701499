"""What the API shows of the audit: to each caller what is theirs."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from kron.core.record import AuditRecord
from kron.fronts.service.page import cursor_of, place_of
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.view import Document, time_text
from kron.ports import AuditFilter


class AuditEntry(BaseModel):
    """One change: when, who, by which request, what they did, to what, and what was before and after."""

    at: str
    who: str
    request_id: str | None
    action: str
    name: str
    user_id: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditPage(BaseModel):
    """Some changes, the latest first."""

    entries: list[AuditEntry]
    next_cursor: str | None


def audit_routes(registrar: Registrar, most: int) -> APIRouter:
    """Return the route of the audit; a page has at most so many entries."""
    router = APIRouter(tags=["audit"])

    @router.get("/audit", response_model=AuditPage)
    async def audit(
        name: Annotated[str | None, Query(description="what was changed")] = None,
        who: Annotated[str | None, Query(description="who changed it")] = None,
        limit: Annotated[int, Query(ge=1, le=most)] = min(100, most),
        cursor: str | None = None,
    ) -> Document:
        """List the changes that somebody made, the latest first."""
        return await audit_page(registrar, AuditFilter(identity=name, who=who), limit=limit, cursor=cursor)

    return router


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
