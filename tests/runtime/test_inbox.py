"""The inbox: reports come out in the order in which they came, and what was put back comes first."""

from hypothesis import example, given
from hypothesis import strategies as st

from kron.core.plan.report import RunEvent, RunReport
from kron.runtime.inbox import Inbox


def report(at: int) -> RunReport:
    return RunReport(f"job {at}", "key", 1, RunEvent.SUCCESS, at)


@given(times=st.lists(st.integers(0, 20)).map(sorted), limit=st.integers(1, 5), until=st.integers(-1, 21))
def test_the_oldest_up_to_an_instant_are_taken_and_no_more_than_asked_for(
    times: list[int], limit: int, until: int
) -> None:
    inbox = Inbox()
    inbox.reports += map(report, times)
    taken = inbox.take(limit, until)
    expected = [at for at in times if at <= until][:limit]
    assert [one.at for one in taken] == expected
    assert [one.at for one in inbox.reports] == times[len(expected) :]


@given(times=st.lists(st.integers(0, 20)).map(sorted), limit=st.integers(1, 5))
def test_what_is_put_back_stands_where_it_was(times: list[int], limit: int) -> None:
    inbox = Inbox()
    inbox.reports += map(report, times)
    inbox.put_back(inbox.take(limit, 20))
    assert [one.at for one in inbox.reports] == times


@given(
    times=st.lists(st.integers(0, 20)).map(sorted),
    names=st.sets(st.integers(0, 20).map(lambda at: f"job {at}")),
    until=st.integers(-1, 21),
)
@example(times=[1, 2, 3, 4], names={"job 1", "job 3"}, until=2)
def test_the_reports_about_some_jobs_are_taken_up_to_an_instant_and_all_others_stay(
    times: list[int], names: set[str], until: int
) -> None:
    inbox = Inbox()
    inbox.reports += map(report, times)
    taken = inbox.take_of(names, until)
    assert [one.at for one in taken] == [at for at in times if f"job {at}" in names and at <= until]
    assert [one.at for one in inbox.reports] == [at for at in times if f"job {at}" not in names or at > until]
