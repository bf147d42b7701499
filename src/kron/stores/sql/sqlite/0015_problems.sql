-- For what did not succeed in a long time of many jobs, without a look at the rows; a successful run costs nothing.
CREATE INDEX runs_problems ON runs (namespace, made_at, job, status, fire_time, began_at, is_open, schedule_id)
WHERE status IN ('FAILED', 'SKIPPED', 'MISSED', 'UNSCHEDULABLE', 'CANCELLED');
