-- For the runs of some schedules in a time, without a look at their whole history: those recorded more than an hour before
-- or after their nominal time. A run that is on time is not in it, so it costs a start nothing.
CREATE INDEX schedule_runs_apart ON schedule_runs (namespace, schedule_id, made_at) WHERE abs(made_at - 1000 * nominal_time) > 3600000;
