"""Previews: what a resume, or an edit that lets a stopped job run, would start, without writing."""

from collections.abc import Mapping, Sequence

from kron.app.budget import CpuBudget
from kron.app.query import Query
from kron.core.plan import resume_preview
from kron.core.plan.report import Traits
from kron.core.plan.resume_preview import ResumePreview, preview_change
from kron.core.plan.step import Change, JobState
from kron.core.wording import counted

# Previews of one request that changes many jobs, as far as its processor time allows: each may plan a
# thousand periods.
MAX_PREVIEWED = 500


async def preview_resume(
    query: Query, identity: str, *, now: int, traits: Mapping[str, Traits] | None = None
) -> ResumePreview:
    """Return what resuming a job at an instant would start, keep waiting and drop."""
    state = await query.state(identity)
    return resume_preview.preview_resume(state, now=now, traits=traits)


def effects_of(
    changed: Sequence[Change], states: Mapping[str, JobState], *, now: int, traits: Mapping[str, Traits]
) -> dict[str, ResumePreview]:
    """Return what those of some changes start that let a stopped job run, by name, while the budget lasts."""
    effects: dict[str, ResumePreview] = {}
    budget = CpuBudget()
    for change in changed:
        state = states.get(change.job.identity)
        effect = None if state is None else preview_change(state, change, now=now, traits=traits)
        if effect is not None:
            effects[change.job.identity] = effect
        if len(effects) == MAX_PREVIEWED or (effects and budget.is_spent):
            break
    return effects


def text_of(effect: ResumePreview) -> str:
    """Return in words what runs again."""
    dropped = {reason.value: periods for reason, periods in effect.dropped.items()}
    return effect_text(
        {"would_start": len(effect.starts), "would_wait": len(effect.waiting), "would_drop": dropped}
    )


def effect_text(view: Mapping[str, object]) -> str:
    """Return in words how many runs start and wait, and how many periods are dropped, by reason."""
    starts, waiting, dropped = view["would_start"], view["would_wait"], view["would_drop"]
    assert isinstance(starts, int) and isinstance(waiting, int) and isinstance(dropped, Mapping)  # noqa: PT018
    parts = [f"{counted(starts, 'run')} would start"]
    if waiting:
        parts.append(f"{waiting:,} would wait")
    for reason, periods in sorted(dropped.items()):
        parts.append(f"{counted(periods, 'period')} would be dropped ({reason})")
    return ", ".join(parts)
