"""Previews: what a resume would start, from the records of a store, without writing."""

from collections.abc import Mapping

from kron.app.query import Query
from kron.core.plan import resume_preview
from kron.core.plan.report import Traits
from kron.core.plan.resume_preview import ResumePreview


async def preview_resume(
    query: Query, identity: str, *, now: int, traits: Mapping[str, Traits] | None = None
) -> ResumePreview:
    """Return what resuming a job at an instant would start, keep waiting and drop."""
    state = await query.state(identity)
    return resume_preview.preview_resume(state, now=now, traits=traits)
