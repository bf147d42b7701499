-- A definition suspends a schedule, a person pauses it, until an instant if one is given: two flags.
-- Until now both were `paused`. In a program only the definition sets it without a reason.

ALTER TABLE jobs ADD COLUMN suspended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN paused_until INTEGER;
UPDATE jobs SET suspended = 1, paused = 0
WHERE paused = 1 AND paused_because IS NULL
    AND namespace IN (SELECT number FROM namespaces WHERE name LIKE 'runner:%');

DROP VIEW schedules;
CREATE VIEW schedules AS
SELECT
    namespaces.name AS namespace,
    schedule_id,
    json_extract(launcher, '$.workflow_id') AS workflow_id,
    json_extract(launcher, '$.version') AS version,
    json_extract(launcher, '$.user_id') AS user_id,
    json_extract(definition, '$.schedule') AS cron_expr,
    coalesce(json_extract(definition, '$.timezone'), 'UTC') AS timezone,
    json_extract(definition, '$.policy.start_at') AS start_at,
    json_extract(definition, '$.policy.end_at') AS end_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', next_time, 'unixepoch') AS next_run_at,
    paused,
    suspended,
    coalesce(json_extract(definition, '$.policy.jitter_ms'), 0) AS jitter_ms,
    coalesce(nullif(json_extract(definition, '$.policy.concurrency'), 'forbid'), 'skip') AS overlap_policy,
    coalesce(nullif(json_extract(definition, '$.policy.catchup'), 'all'), 'fire_immediately') AS catchup_policy,
    strftime('%Y-%m-%dT%H:%M:%fZ', changed_at / 1000.0, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', deleted_at / 1000.0, 'unixepoch') AS deleted_at,
    definition,
    launcher,
    epoch
FROM jobs JOIN namespaces ON namespaces.number = jobs.namespace;
