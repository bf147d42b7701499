"""Pruning, the same for every database: which statements run, in which order, within which bound."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from kron.core.job.profile import retention_of
from kron.core.plan.query import PruneBounds, PruneCursor, PrunedBatch

# Jobs that one batch visits. Reading them takes about as long as removing a full batch.
JOBS_PER_BATCH = 100
# More than a page can hold: a count has no bound.
NO_LIMIT = 1 << 62

# A statement with its values; the rows it returns are sent back.
Statement = tuple[str, dict[str, object]]
Rows = Sequence[Sequence[Any]]
Pruning = Generator[Statement, Any, PrunedBatch]
# Makes the database's list of keys from the keys as it returned them.
Listed = Callable[[Sequence[object]], object]


def prune_batch(
    sql: Mapping[str, str], bounds: PruneBounds, cursor: PruneCursor, *, limit: int, listed: Listed
) -> Pruning:
    """Remove at most `limit` records of one page of jobs, or of the audit once all jobs were visited."""
    if cursor.after is None:
        return (yield from _prune_audit(sql, bounds, cursor, limit, listed))
    if bounds.before is None and bounds.now is None:
        return PrunedBatch(cursor=_after_jobs(bounds))
    if bounds.before is not None:
        # Beside the records of runs, and not counted: an incident explains records that are as old.
        yield sql["incidents"], {"before": bounds.before, "limit": limit}
    following, groups = yield from _page(sql, bounds, cursor, listed)
    batch = PrunedBatch()
    for values in groups:
        removed = yield from _prune_group(sql, values, cursor, limit=limit - batch.records, listed=listed)
        batch = batch.plus(removed)
        if removed.cursor is not None:
            return batch._replace(cursor=cursor)
    return batch._replace(cursor=following)


def _prune_group(
    sql: Mapping[str, str], values: dict[str, object], cursor: PruneCursor, *, limit: int, listed: Listed
) -> Pruning:
    """Remove at most `limit` records of jobs with the same bounds; the cursor is set if some may be left."""
    batch = yield from _prune_runs(sql, values, limit, listed)
    left = limit - batch.runs - batch.attempts
    if left <= 0:
        return batch._replace(cursor=cursor)
    ranges = yield f"{sql['prunable']} {sql['ranges']}", {**values, "limit": left}
    left -= len(ranges)
    if left <= 0:
        return batch._replace(ranges=len(ranges), cursor=cursor)
    epochs = yield f"{sql['prunable']} {sql['epochs']}", {**values, "limit": left}
    if len(epochs) >= left:
        return batch._replace(ranges=len(ranges), definitions=len(epochs), cursor=cursor)
    jobs = yield f"{sql['prunable']} {sql['jobs']}", {**values, "limit": left}
    more = yield sql["epochs_of_jobs"], {"jobs": listed([row[0] for row in jobs])}
    batch = batch._replace(ranges=len(ranges), definitions=len(epochs) + len(more), schedules=len(jobs))
    return batch._replace(cursor=cursor) if batch.records >= limit else batch


def count_batch(
    sql: Mapping[str, str], bounds: PruneBounds, cursor: PruneCursor, *, limit: int, listed: Listed
) -> Pruning:
    """Count what pruning one page of jobs, or `limit` audit entries, would remove; nothing is removed."""
    if cursor.after is None:
        return (yield from _prune_audit(sql, bounds, cursor, limit, None))
    if bounds.before is None and bounds.now is None:
        return PrunedBatch(cursor=_after_jobs(bounds))
    following, groups = yield from _page(sql, bounds, cursor, listed)
    batch = PrunedBatch()
    for values in groups:
        (counts,) = yield f"{sql['prunable']} {sql['count']}", {**values, "limit": NO_LIMIT}
        runs, attempts, ranges, definitions, schedules = counts
        batch = batch.plus(PrunedBatch(runs, attempts, ranges, definitions, schedules))
    return batch._replace(cursor=following)


def _page(
    sql: Mapping[str, str], bounds: PruneBounds, cursor: PruneCursor, listed: Listed
) -> Generator[Statement, Any, tuple[PruneCursor | None, list[dict[str, object]]]]:
    """Return the cursor after the next jobs, and the values of the statements about them.

    Jobs with a retention of their own have other bounds; those with the same bounds form a group.
    """
    page = yield sql["page"], {"after": cursor.after, "jobs_limit": JOBS_PER_BATCH}
    is_last = len(page) < JOBS_PER_BATCH
    following = _after_jobs(bounds) if is_last else PruneCursor(after=page[-1][1])
    groups: dict[PruneBounds, list[object]] = {}
    for key, _, profile in page:
        groups.setdefault(bounds.for_job(retention_of(profile)), []).append(key)
    values: list[dict[str, object]] = [
        {
            "jobs": listed(keys),
            "before": own.before,
            "before_s": -(-own.before // 1000),
            "keep_runs": own.keep_runs,
        }
        for own, keys in groups.items()
        if own.before is not None
    ]
    return following, values


def _after_jobs(bounds: PruneBounds) -> PruneCursor | None:
    return None if bounds.audit_before is None else PruneCursor(after=None)


def _prune_runs(sql: Mapping[str, str], values: dict[str, object], limit: int, listed: Listed) -> Pruning:
    runs = yield f"{sql['prunable']} {sql['runs']}", {**values, "limit": limit}
    retried = [key for key, attempt in runs if attempt > 1]
    attempts: Sequence[object] = ()
    if retried:
        attempts = yield sql["attempts"], {"runs": listed(retried)}
    return PrunedBatch(runs=len(runs), attempts=len(attempts))


def _prune_audit(
    sql: Mapping[str, str], bounds: PruneBounds, cursor: PruneCursor, limit: int, listed: Listed | None
) -> Pruning:
    """Read the oldest audit entries and remove those before the bound; without `listed`, count them."""
    assert bounds.audit_before is not None
    values: dict[str, object] = {"audit": cursor.audit, "audit_before": bounds.audit_before, "limit": limit}
    page = yield sql["audit_page"], values
    numbers = [number for number, is_old, _ in page if is_old]
    if numbers and listed is not None:
        yield sql["audit"], {"numbers": listed([str(number) for number in numbers])}
    # Entries are numbered in the order of their times.
    is_last = len(page) < limit or page[-1][2] >= bounds.audit_before
    following = None if is_last else cursor._replace(audit=page[-1][0])
    return PrunedBatch(audit=len(numbers), cursor=following)
