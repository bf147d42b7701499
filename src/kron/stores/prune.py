"""Pruning, the same for every database: which statements run, in which order, within which bound."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

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
    if bounds.before is None:
        return PrunedBatch(cursor=_after_jobs(bounds))
    page, following, values = yield from _page(sql, bounds, bounds.before, cursor, listed)
    if not page:
        return PrunedBatch(cursor=following)
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
    return batch._replace(
        ranges=len(ranges), definitions=len(epochs) + len(more), schedules=len(jobs), cursor=following
    )


def count_batch(
    sql: Mapping[str, str], bounds: PruneBounds, cursor: PruneCursor, *, limit: int, listed: Listed
) -> Pruning:
    """Count what pruning one page of jobs, or `limit` audit entries, would remove; nothing is removed."""
    if cursor.after is None:
        return (yield from _prune_audit(sql, bounds, cursor, limit, None))
    if bounds.before is None:
        return PrunedBatch(cursor=_after_jobs(bounds))
    page, following, values = yield from _page(sql, bounds, bounds.before, cursor, listed)
    if not page:
        return PrunedBatch(cursor=following)
    (counts,) = yield f"{sql['prunable']} {sql['count']}", {**values, "limit": NO_LIMIT}
    runs, attempts, ranges, definitions, schedules = counts
    return PrunedBatch(runs, attempts, ranges, definitions, schedules, cursor=following)


def _page(
    sql: Mapping[str, str], bounds: PruneBounds, before: int, cursor: PruneCursor, listed: Listed
) -> Generator[Statement, Any, tuple[Rows, PruneCursor | None, dict[str, object]]]:
    """Return the next jobs, the cursor after them, and the values of the statements about them."""
    page = yield sql["page"], {"after": cursor.after, "jobs_limit": JOBS_PER_BATCH}
    is_last = len(page) < JOBS_PER_BATCH
    following = _after_jobs(bounds) if is_last else PruneCursor(after=page[-1][1])
    values: dict[str, object] = {
        "jobs": listed([row[0] for row in page]),
        "before": before,
        "before_s": -(-before // 1000),
        "keep_runs": bounds.keep_runs,
    }
    return page, following, values


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
