"""Taking over: what an earlier owner left behind is found, or reported as lost."""

from collections.abc import Mapping

from kron.core.event import Happened, Report
from kron.core.shard import shard_of
from kron.ports import Hear, Launch, Launcher, Ownership, Store


async def orphans_of(
    store: Store,
    launchers: Mapping[str, Launcher],
    ownership: Ownership,
    *,
    shards: frozenset[int],
    hear: Hear,
    now: int,
) -> list[Report]:
    """Have launchers adopt the executions of some shards; return a report for each that is not found."""
    left = [run for run in await store.in_flight(ownership) if shard_of(run.identity) in shards]
    if not left:
        return []
    cases = await store.cases(ownership.namespace, [run.identity for run in left])
    jobs = {case.job.identity: case.job for case in cases}
    left = [run for run in left if run.identity in jobs]
    reports: list[Report] = []
    for kind in {job.launcher_kind for job in jobs.values()}:
        launcher = launchers.get(kind)
        mine = [Launch(jobs[run.identity], run) for run in left if jobs[run.identity].launcher_kind == kind]
        found = await launcher.adopt(mine, hear) if launcher else frozenset()
        reports += [
            Report(run.identity, run.key, run.attempt, Happened.ORPHANED, now)
            for _, run in mine
            if run.key not in found
        ]
    return reports
