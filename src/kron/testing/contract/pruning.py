# ruff: noqa: D102 - the name of a test is its sentence
"""Old history is pruned in bounded batches; open runs and the newest outcome of each job stay."""

from collections.abc import Sequence

from kron.core.job.outcome import Reason
from kron.core.plan.query import FROM_START, AuditFilter, PruneBounds, PruneCursor, PrunedBatch
from kron.core.plan.record import AuditRecord, RunKind, RunRecord, RunStatus, request_key_of
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    ELSEWHERE,
    MINUTE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_range,
    a_run,
    an_end,
    keys_of,
    stored,
    written,
)

# Every nominal time of these tests is before it, and so is every write unless a test says otherwise.
OLD = NOON - 1_000
EVERYTHING = PruneBounds(before=NOW + 1)
MAX_BATCHES = 1_000


class PruningContract:
    """Records older than the bound go, a few at a time; the rest stays."""

    async def test_open_runs_are_never_pruned(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        waiting = a_run(nominal_time=OLD, status=RunStatus.PENDING)
        closed = [_ended(n) for n in (1, 2)]
        await written(store, ownership, waiting, *closed)
        assert await _pruned(store) == PrunedBatch(runs=1)
        assert await keys_of(store, "backup") == {waiting.key, closed[1].key}

    async def test_the_newest_outcome_of_a_job_is_never_pruned(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("often"), a_job("once"))
        often = [_ended(n, "often") for n in range(3)]
        once = _ended(0, "once")
        await written(store, ownership, *often, once)
        assert await _pruned(store) == PrunedBatch(runs=2)
        assert await keys_of(store, "often") == {often[2].key}
        assert await keys_of(store, "once") == {once.key}
        assert await _pruned(store) == PrunedBatch()

    async def test_a_job_with_a_retention_of_its_own_is_pruned_by_it(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        short = a_job("short", profile='{"retention":{"keep":"0s","keep_runs":1}}')
        long = a_job("long", profile='{"retention":{"keep":"forever"}}')
        await stored(store, short, long, a_job("usual", profile='{"tags":["x"]}'))
        runs = [_ended(n, name) for name in ("short", "long", "usual") for n in range(4)]
        await written(store, ownership, *runs)
        kept_for_ever = PruneBounds(before=None, keep_runs=3, now=NOW + 1_000_000)
        assert await _pruned(store, kept_for_ever) == PrunedBatch(runs=3)
        assert await _pruned(store, kept_for_ever._replace(before=NOW + 1)) == PrunedBatch(runs=1)
        kept = {name: len(await keys_of(store, name)) for name in ("short", "long", "usual")}
        assert kept == {"short": 1, "long": 4, "usual": 3}

    async def test_the_last_runs_of_each_job_stay_whatever_their_age(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("often"), a_job("seldom"))
        often = [_ended(n, "often") for n in range(8)]
        seldom = [_ended(n, "seldom") for n in range(3)]
        await written(store, ownership, *often, *seldom)
        assert await _pruned(store, EVERYTHING._replace(keep_runs=8)) == PrunedBatch()
        assert await _pruned(store, EVERYTHING._replace(keep_runs=3)) == PrunedBatch(runs=5)
        assert await keys_of(store, "often") == {run.key for run in often[5:]}
        assert await keys_of(store, "seldom") == {run.key for run in seldom}

    async def test_manual_runs_count_among_the_last_and_take_no_outcome_with_them(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        period = _ended(0)
        manual = [an_end(_manual(OLD + n)) for n in range(1, 5)]
        await written(store, ownership, period, *manual)
        assert await _pruned(store, EVERYTHING._replace(keep_runs=2)) == PrunedBatch(runs=2)
        assert await keys_of(store, "backup") == {period.key, manual[2].key, manual[3].key}

    async def test_younger_records_are_not_pruned(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        runs = [_ended(n) for n in range(4)]
        for n, run in enumerate(runs):
            await written(store, ownership, run, now=NOW + n)
        assert await _pruned(store, PruneBounds(before=NOW + 2)) == PrunedBatch(runs=2)
        assert await keys_of(store, "backup") == {runs[2].key, runs[3].key}

    async def test_a_period_that_is_still_to_come_is_not_pruned(self, store: Store) -> None:
        """It may have been executed early, in a window before its nominal time."""
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        early = [an_end(a_run(nominal_time=NOON + n)) for n in (60, 120)]
        await written(store, ownership, *early)
        assert await _pruned(store) == PrunedBatch()

    async def test_without_a_bound_nothing_is_pruned(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        await written(store, ownership, *(_ended(n) for n in range(3)))
        assert await store.prune(SPACE, PruneBounds(before=None), limit=100) == PrunedBatch()
        assert len(await keys_of(store, "backup")) == 3

    async def test_every_batch_is_bounded_and_the_last_one_ends_it(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        change = a_change(job)
        change.ranges += [a_range("backup", OLD - 20 * n, OLD - 20 * n + 5) for n in range(1, 6)]
        change.inserts += [_ended(n) for n in range(11)]
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        batches = await _batches(store, EVERYTHING, limit=4)
        assert [batch.runs + batch.ranges for batch in batches] == [4, 4, 4, 3]
        assert len(await keys_of(store, "backup")) == 1
        assert await store.ranges(SPACE, "backup") == []

    async def test_attempts_go_with_their_run_and_count(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        runs = [_ended(n)._replace(attempt=3) for n in range(4)]
        attempts = [run._replace(attempt=attempt) for run in runs for attempt in (1, 2)]
        await written(store, ownership, *runs, attempts=attempts)
        batches = await _batches(store, EVERYTHING, limit=6)
        assert [(batch.runs, batch.attempts) for batch in batches] == [(2, 4), (1, 2)]
        found = [len(await store.attempts(SPACE, run.key)) for run in runs]
        assert sorted(found) == [0, 0, 0, 2]

    async def test_a_batch_visits_many_jobs_and_continues_after_the_last(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        names = [f"job-{n:03}" for n in range(250)]
        await stored(store, *map(a_job, names))
        old = [_ended(n, name) for name in (names[0], names[-1]) for n in range(2)]
        await written(store, ownership, *old)
        batches = await _batches(store, EVERYTHING, limit=100)
        assert [batch.runs for batch in batches] == [1, 0, 1]
        assert await _pruned(store) == PrunedBatch()

    async def test_a_manual_run_is_no_outcome_of_the_schedule(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        period = _ended(0)
        manual = [an_end(_manual(OLD + n)) for n in (-1, 0, 1)]
        await written(store, ownership, period, *manual)
        assert await _pruned(store) == PrunedBatch(runs=3)
        assert await keys_of(store, "backup") == {period.key}

    async def test_a_period_that_only_waits_is_no_outcome_yet(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        ended = [_ended(n) for n in (0, 1)]
        planned = a_run(nominal_time=OLD + 2, status=RunStatus.PENDING, reason=Reason.PLANNED)
        await written(store, ownership, *ended, planned)
        assert await _pruned(store) == PrunedBatch(runs=1)
        assert await keys_of(store, "backup") == {ended[1].key, planned.key}

    async def test_of_runs_and_ranges_only_the_newest_stays(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        change = a_change(job)
        change.ranges += [a_range("backup", OLD - 20, OLD - 10), a_range("backup", OLD + 10, OLD + 20)]
        change.inserts.append(_ended(0))
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        assert await _pruned(store, PruneBounds(before=NOW)) == PrunedBatch()
        assert await _pruned(store) == PrunedBatch(runs=1, ranges=1)
        assert await keys_of(store, "backup") == set()
        assert await store.ranges(SPACE, "backup") == [change.ranges[1]]
        assert await _pruned(store) == PrunedBatch()

    async def test_pruning_one_job_or_namespace_leaves_the_others_alone(self, store: Store) -> None:
        ownership, other = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "a")
        await stored(store, a_job("one"), a_job("two"))
        await stored(store, a_job("one"), namespace=ELSEWHERE)
        old, new = _ended(0, "one"), _ended(1, "one")
        await written(store, ownership, old, new, _ended(0, "two"))
        await written(store, other, old, new)
        assert await _pruned(store) == PrunedBatch(runs=1)
        assert await keys_of(store, "two") == {_ended(0, "two").key}
        assert await keys_of(store, "one", ELSEWHERE) == {old.key, new.key}

    async def test_a_definition_goes_with_the_last_record_that_follows_it(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        for epoch in (2, 3, 4):
            await _edited(store, epoch=epoch, edited_at=NOW + epoch)
        second, third = (_ended(n)._replace(epoch=n) for n in (2, 3))
        await written(store, ownership, second, third, now=NOW)
        # The first is older than every record; the second goes with the run that follows it.
        assert await _pruned(store, PruneBounds(before=NOW + 3)) == PrunedBatch(runs=1, definitions=1)
        assert [record.epoch for record in await store.epochs(SPACE, "backup")] == [2, 3]
        assert await _pruned(store, PruneBounds(before=NOW + 4)) == PrunedBatch(definitions=1)
        # The newest outcome follows the third.
        assert await _pruned(store, PruneBounds(before=NOW + MINUTE)) == PrunedBatch()
        assert [record.epoch for record in await store.epochs(SPACE, "backup")] == [3]

    async def test_a_definition_that_was_replaced_lately_stays(self, store: Store) -> None:
        await stored(store, a_job())
        await _edited(store, epoch=2, edited_at=NOW + MINUTE)
        assert await _pruned(store, PruneBounds(before=NOW + MINUTE)) == PrunedBatch()
        assert await _pruned(store, PruneBounds(before=NOW + MINUTE + 1)) == PrunedBatch(definitions=1)

    async def test_a_definition_that_is_still_followed_stays(self, store: Store) -> None:
        await stored(store, a_job())
        await _edited(store, epoch=2, edited_at=NOW, past=f'[[1, 0, {NOON}, "{{}}"]]')
        assert await _pruned(store, PruneBounds(before=NOW + MINUTE)) == PrunedBatch()
        await _edited(store, epoch=2, past=None)
        assert await _pruned(store, PruneBounds(before=NOW + MINUTE)) == PrunedBatch(definitions=1)

    async def test_a_job_that_was_deleted_long_ago_goes_with_everything(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        await _edited(store, epoch=2, edited_at=NOW - 5)
        (state,) = await store.cases(SPACE, ["backup"])
        change = a_change(state.job)
        change.ranges.append(a_range("backup", OLD - 20, OLD - 10))
        runs = [_ended(n)._replace(attempt=2) for n in range(3)]
        change.inserts += runs
        change.attempts += [run._replace(attempt=1) for run in runs]
        assert await store.settle(ownership, [change], now=NOW - 5) == CLEAN
        await _edited(store, deleted_at=NOW - 5, plan_at=None)
        kept = EVERYTHING._replace(keep_runs=100)
        assert await _pruned(store, kept._replace(before=NOW - 5)) == PrunedBatch()
        expected = PrunedBatch(runs=3, attempts=3, ranges=1, definitions=1, schedules=1)
        assert await _counted(store, kept) == expected
        assert await _pruned(store, kept) == expected
        assert await store.cases(SPACE, ["backup"]) == []
        assert await store.epochs(SPACE, "backup") == []

    async def test_a_deleted_job_stays_while_a_run_of_it_is_open_or_ended_lately(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("open"), a_job("late"), a_job("empty"))
        await written(store, ownership, a_run("open", OLD), _ended(1, "open"), now=NOW - 5)
        await written(store, ownership, _ended(1, "late"), now=NOW + 5)
        for name in ("open", "late", "empty"):
            await _edited(store, name, deleted_at=NOW - 5, plan_at=None)
        assert await _pruned(store) == PrunedBatch(runs=1, schedules=1)
        assert {state.job.identity for state in await store.cases(SPACE)} == {"open", "late"}

    async def test_a_job_that_was_pruned_can_be_created_again(self, store: Store) -> None:
        await stored(store, a_job())
        await _edited(store, deleted_at=NOW - 5, plan_at=None)
        (deleted,) = await store.cases(SPACE, ["backup"])
        assert await _pruned(store) == PrunedBatch(schedules=1)
        revived = a_change(deleted.job, deleted_at=None)
        refused = await store.put(SPACE, created=[], changed=[revived], now=NOW)
        assert refused.stale_jobs == {"backup"}
        await stored(store, a_job())

    async def test_audit_records_older_than_their_bound_go(self, store: Store) -> None:
        await _audited(store, SPACE, range(6))
        await _audited(store, ELSEWHERE, range(6))
        bounds = PruneBounds(before=None, audit_before=NOW + 4)
        assert await _counted(store, bounds, limit=2) == PrunedBatch(audit=4)
        batches = await _batches(store, bounds, limit=2)
        assert max(batch.audit for batch in batches) == 2
        assert sum(batch.audit for batch in batches) == 4
        found = await store.audits(SPACE, AuditFilter())
        assert sorted(one.record.at for one in found) == [NOW + 4, NOW + 5]
        assert len(await store.audits(ELSEWHERE, AuditFilter())) == 6
        assert sum([batch.audit for batch in await _batches(store, bounds, limit=2)]) == 0

    async def test_a_dry_run_counts_exactly_the_records_that_would_go(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(name) for name in ("one", "two", "three")))
        for name in ("one", "two"):
            await _edited(store, name, epoch=2, edited_at=NOW - 5)
            (state,) = await store.cases(SPACE, [name])
            change = a_change(state.job)
            change.ranges.append(a_range(name, OLD - 20, OLD - 10))
            change.inserts += [_ended(n, name)._replace(attempt=1 + n % 2) for n in range(9)]
            change.attempts += [run._replace(attempt=1) for run in change.inserts if run.attempt > 1]
            assert await store.settle(ownership, [change], now=NOW) == CLEAN
        await _edited(store, "three", deleted_at=NOW - 5, plan_at=None)
        await _audited(store, SPACE, range(-3, 3))
        bounds = EVERYTHING._replace(keep_runs=4, audit_before=NOW)
        counted = await _counted(store, bounds)
        assert counted == await _counted(store, bounds)
        assert counted.runs == 10
        assert counted.audit == 3
        assert await _pruned(store, bounds, limit=3) == counted
        assert await _counted(store, bounds) == PrunedBatch()


def _ended(number: int, identity: str = "backup") -> RunRecord:
    """Return an old period that has ended."""
    return an_end(a_run(identity, OLD + number))


def _manual(nominal_time: int) -> RunRecord:
    """Return a manual run."""
    key = request_key_of("backup", RunKind.MANUAL, f"request {nominal_time}")
    return a_run(nominal_time=nominal_time, kind=RunKind.MANUAL, key=key, reason=Reason.ASKED)


async def _edited(store: Store, identity: str = "backup", **fields: object) -> None:
    """Change a job's record."""
    (state,) = await store.cases(SPACE, [identity])
    assert await store.put(SPACE, created=[], changed=[a_change(state.job, **fields)], now=NOW - 5) == CLEAN


async def _audited(store: Store, namespace: str, offsets: Sequence[int]) -> None:
    for offset in offsets:
        record = AuditRecord(NOW + offset, "ann", None, "pause", "backup", "ann", None, None)
        result = await store.put(namespace, created=[], changed=[], audit=[record], now=NOW + offset)
        assert result == CLEAN


async def _batches(
    store: Store, bounds: PruneBounds, *, limit: int, dry_run: bool = False
) -> list[PrunedBatch]:
    """Prune to the end, and return every batch."""
    batches: list[PrunedBatch] = []
    cursor: PruneCursor | None = FROM_START
    while cursor is not None:
        assert len(batches) < MAX_BATCHES
        batches.append(await store.prune(SPACE, bounds, cursor=cursor, limit=limit, dry_run=dry_run))
        cursor = batches[-1].cursor
    return batches


async def _pruned(store: Store, bounds: PruneBounds = EVERYTHING, *, limit: int = 100) -> PrunedBatch:
    """Prune to the end, and return the sum of all batches."""
    return _sum(await _batches(store, bounds, limit=limit))


async def _counted(store: Store, bounds: PruneBounds, *, limit: int = 100) -> PrunedBatch:
    """Return the sum of a dry run."""
    return _sum(await _batches(store, bounds, limit=limit, dry_run=True))


def _sum(batches: Sequence[PrunedBatch]) -> PrunedBatch:
    return PrunedBatch(*(sum(column) for column in list(zip(*batches, strict=True))[:-1]))
