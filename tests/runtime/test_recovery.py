"""Changes whose commit is uncertain: what of them is made up for, once the store answers again."""

import pytest

from kron.core.plan.step import Change, JobState
from kron.runtime.recovery import confirm_changes
from kron.testing.contract.sample import NOW, a_change, a_job, a_run


@pytest.mark.parametrize(
    ("late", "starts"),
    [pytest.param(-1, 1, id="within its timeout"), pytest.param(0, 0, id="its timeout has passed")],
)
def test_a_start_is_made_up_for_unless_its_timeout_has_passed(late: int, starts: int) -> None:
    """The step that follows records it as lost, and it must not run beside the next period."""
    job, run = a_change(a_job()).job, a_run(due_at=NOW, is_open=1, acked=0)
    change = Change(job, job.revision - 1, starts=[run])
    committed, started, _ = confirm_changes([change], [JobState(job, [run])], NOW + late)
    assert committed == [change]
    assert [launch.run for launch in started] == [run] * starts
