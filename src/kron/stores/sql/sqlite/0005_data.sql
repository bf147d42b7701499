-- A run, an attempt, a range and an earlier definition refer to their schedule. From now on every connection enforces
-- it; what an older program left without a schedule cannot be reached, and goes.
DELETE FROM attempts WHERE job NOT IN (SELECT number FROM jobs);
DELETE FROM runs WHERE job NOT IN (SELECT number FROM jobs);
DELETE FROM ranges WHERE job NOT IN (SELECT number FROM jobs);
DELETE FROM epochs WHERE job NOT IN (SELECT number FROM jobs);

-- The views show every timestamp as RFC 3339 in UTC, and a version only within its range. A damaged row does not hide
-- the others.
DROP VIEW schedules;
CREATE VIEW schedules AS
SELECT
    namespaces.name AS namespace,
    schedule_id,
    launcher ->> '$.workflow_id' AS workflow_id,
    CASE WHEN typeof(launcher ->> '$.version') = 'integer' AND launcher ->> '$.version' BETWEEN 0 AND 2147483647
        THEN launcher ->> '$.version' END AS version,
    launcher ->> '$.user_id' AS user_id,
    definition ->> '$.schedule' AS cron_expr,
    coalesce(definition ->> '$.timezone', 'UTC') AS timezone,
    definition ->> '$.policy.start_at' AS start_at,
    definition ->> '$.policy.end_at' AS end_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', next_time, 'unixepoch') AS next_run_at,
    paused,
    suspended,
    coalesce(definition ->> '$.policy.jitter_ms', 0) AS jitter_ms,
    coalesce(nullif(definition ->> '$.policy.concurrency', 'forbid'), 'skip') AS overlap_policy,
    coalesce(nullif(definition ->> '$.policy.catchup', 'all'), 'fire_immediately') AS catchup_policy,
    strftime('%Y-%m-%dT%H:%M:%fZ', changed_at / 1000.0, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', deleted_at / 1000.0, 'unixepoch') AS deleted_at,
    definition,
    launcher,
    epoch
FROM (
    SELECT
        namespace, schedule_id, next_time, paused, suspended, changed_at, deleted_at, epoch,
        iif(json_valid(launcher), launcher, '{}') AS launcher,
        iif(json_valid(definition), definition, '{}') AS definition
    FROM jobs
) AS jobs JOIN namespaces ON namespaces.number = jobs.namespace;

-- The schedule's name is that of the row which the run refers to.
DROP VIEW schedule_runs;
CREATE VIEW schedule_runs AS
SELECT
    namespaces.name AS namespace,
    idempotency_key,
    jobs.schedule_id,
    strftime('%Y-%m-%dT%H:%M:%SZ', nominal_time, 'unixepoch') AS run_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', fire_time / 1000.0, 'unixepoch') AS fire_at,
    status,
    reason,
    run_id,
    kind,
    attempt,
    strftime('%Y-%m-%dT%H:%M:%fZ', began_at / 1000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', over_at / 1000.0, 'unixepoch') AS ended_at,
    result,
    error,
    strftime('%Y-%m-%dT%H:%M:%fZ', made_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', runs.changed_at / 1000.0, 'unixepoch') AS updated_at
FROM runs JOIN jobs ON jobs.number = runs.job JOIN namespaces ON namespaces.number = jobs.namespace;

-- The same views in every database.
CREATE VIEW kron_schedules AS
SELECT
    namespace, schedule_id, workflow_id, version, user_id, cron_expr, timezone, start_at, end_at, next_run_at,
    paused, suspended, jitter_ms, overlap_policy, catchup_policy, updated_at, deleted_at, definition, launcher, epoch
FROM schedules;

CREATE VIEW kron_runs AS
SELECT
    namespace, idempotency_key, schedule_id, run_at, fire_at, status, reason, run_id, kind, attempt, started_at,
    ended_at, result, error, created_at, updated_at
FROM schedule_runs;

CREATE VIEW kron_attempts AS
SELECT
    namespaces.name AS namespace,
    schedule_id,
    idempotency_key,
    attempt,
    run_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', began_at / 1000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', over_at / 1000.0, 'unixepoch') AS ended_at,
    result,
    error
FROM attempts JOIN jobs ON jobs.number = attempts.job JOIN namespaces ON namespaces.number = jobs.namespace;

CREATE VIEW kron_ranges AS
SELECT
    namespaces.name AS namespace,
    jobs.schedule_id,
    strftime('%Y-%m-%dT%H:%M:%SZ', first, 'unixepoch') AS first_run_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', last, 'unixepoch') AS last_run_at,
    periods,
    outcome,
    reason,
    ranges.epoch,
    strftime('%Y-%m-%dT%H:%M:%fZ', made_at / 1000.0, 'unixepoch') AS created_at
FROM ranges JOIN jobs ON jobs.number = ranges.job JOIN namespaces ON namespaces.number = jobs.namespace;

CREATE VIEW kron_epochs AS
SELECT
    namespaces.name AS namespace,
    jobs.schedule_id,
    epochs.epoch,
    strftime('%Y-%m-%dT%H:%M:%fZ', made_at / 1000.0, 'unixepoch') AS created_at,
    epochs.definition
FROM epochs JOIN jobs ON jobs.number = epochs.job JOIN namespaces ON namespaces.number = jobs.namespace;

CREATE VIEW kron_workflows AS
SELECT
    workflow_id,
    version,
    user_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
    dag
FROM workflows;

CREATE VIEW kron_audit AS
SELECT
    audit.number,
    namespaces.name AS namespace,
    strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS created_at,
    who,
    request_id,
    action,
    schedule_id,
    user_id,
    "before",
    "after"
FROM audit JOIN namespaces ON namespaces.number = audit.namespace;

CREATE VIEW kron_leases AS
SELECT namespaces.name AS namespace, shard, owner, token, NULL AS expires_at
FROM leases JOIN namespaces ON namespaces.number = leases.namespace;

CREATE VIEW kron_clock_excursions AS
SELECT
    namespaces.name AS namespace,
    event,
    owner,
    strftime('%Y-%m-%dT%H:%M:%fZ', found_at / 1000.0, 'unixepoch') AS found_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', reference / 1000.0, 'unixepoch') AS reference_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', over_at / 1000.0, 'unixepoch') AS ended_at,
    ending,
    reopened
FROM clock_excursions JOIN namespaces ON namespaces.number = clock_excursions.namespace;

CREATE VIEW kron_reopened AS
SELECT
    namespaces.name AS namespace,
    jobs.schedule_id,
    strftime('%Y-%m-%dT%H:%M:%SZ', first, 'unixepoch') AS first_run_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', last, 'unixepoch') AS last_run_at,
    periods,
    outcome,
    reason,
    reopened.epoch,
    strftime('%Y-%m-%dT%H:%M:%fZ', made_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', reopened_at / 1000.0, 'unixepoch') AS reopened_at
FROM reopened JOIN jobs ON jobs.number = reopened.job JOIN namespaces ON namespaces.number = jobs.namespace;
