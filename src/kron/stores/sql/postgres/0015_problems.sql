-- For what did not succeed in a long time of many schedules, without a look at the rows; a successful run costs nothing.
CREATE INDEX schedule_runs_problems ON schedule_runs (namespace, made_at) INCLUDE (schedule_id, status, fire_time, began_at, is_open)
WHERE status IN ('FAILED', 'SKIPPED', 'MISSED', 'UNSCHEDULABLE', 'CANCELLED');
