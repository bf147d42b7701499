"""What runs again when many stopped jobs are changed at once is computed while the budget lasts."""

from kron.app import preview
from kron.app.preview import effects_of
from kron.clocks.system import processor_time
from kron.core.plan.registration import create
from kron.core.plan.step import Change, JobState
from kron.core.time.instant import milliseconds_of
from tests.engine_stage import NOON, job_of

JOBS = 400
# Fifteen minutes of periods of every second are planned for each.
STOPPED_MS = 900_000


def test_effects_are_computed_while_the_budget_lasts_and_one_in_any_case() -> None:
    now = milliseconds_of(NOON)
    jobs = [create(job_of(f"job {number}", "* * * * * *", catchup="all"), now=now) for number in range(JOBS)]
    states = {job.identity: JobState(job._replace(suspended=1)) for job in jobs}
    changed = [Change(job._replace(revision=job.revision + 1), job.revision) for job in jobs]
    began = processor_time()
    effects = effects_of(changed, states, now=now + STOPPED_MS, traits={})
    spent = processor_time() - began
    assert list(effects) == [job.identity for job in jobs[: len(effects)]]
    assert 0 < len(effects) < JOBS <= preview.MAX_PREVIEWED
    # Without a budget it takes several seconds.
    assert spent < 1.5
