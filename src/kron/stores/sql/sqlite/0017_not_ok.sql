-- A list after IN becomes a table of its own at each write of a run; comparisons cost a successful run nothing.
DROP INDEX runs_not_ok;
CREATE INDEX runs_not_ok ON runs (job, nominal_time, status)
WHERE is_open = 0 AND status <> 'SUCCESS' AND status <> 'ENQUEUED' AND status <> 'STARTED' AND status <> 'PENDING';

DROP INDEX runs_problems;
CREATE INDEX runs_problems ON runs (namespace, made_at, job, status, fire_time, began_at, is_open, schedule_id)
WHERE status <> 'SUCCESS' AND status <> 'ENQUEUED' AND status <> 'STARTED' AND status <> 'PENDING';
