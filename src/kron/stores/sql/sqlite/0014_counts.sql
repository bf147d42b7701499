-- For the outcomes of a long history by day. Only what did not succeed is in it, so a successful run costs nothing.
CREATE INDEX runs_not_ok ON runs (job, nominal_time, status)
WHERE status IN ('FAILED', 'SKIPPED', 'MISSED', 'UNSCHEDULABLE', 'CANCELLED') AND is_open = 0;
