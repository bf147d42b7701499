-- For how many runs a user has open.
CREATE INDEX dag_runs_open ON dag_runs (user_id) WHERE status IN ('queued', 'running');
