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


@given(
    names=st.lists(st.sampled_from("abcd")),
    jobs=st.integers(1, 4),
    limit=st.integers(1, 9),
    now=st.integers(0, 20),
)
@example(names=list("abcabcabc"), jobs=2, limit=9, now=20)
@example(names=list("abcabcabc"), jobs=1, limit=2, now=20)
def test_all_reports_about_some_jobs_are_taken_in_order_and_none_is_lost(
    names: list[str], jobs: int, limit: int, now: int
) -> None:
    inbox, sent = Inbox(), [report(at)._replace(identity=name) for at, name in enumerate(names)]
    inbox.reports += sent
    taken = inbox.take_jobs(jobs, limit, now)
    assert len(taken) <= limit
    assert len({one.identity for one in taken}) <= jobs
    assert sorted([*taken, *inbox.reports], key=lambda one: one.at) == sent
    for name in "abcd":
        of_job = [one for one in sent if one.identity == name]
        assert [one for one in (*taken, *inbox.reports) if one.identity == name] == of_job
    if len(taken) < limit:
        of_taken = {one.identity for one in taken}
        assert not [one for one in inbox.reports if one.identity in of_taken and one.at <= now]
