-- A run refers to its schedule. What an older program left without one cannot be reached, and goes. The check waits for
-- the end of a transaction, so that a schedule and its runs may be removed in any order.
DELETE FROM schedule_runs WHERE NOT EXISTS (
    SELECT 1 FROM schedules
    WHERE schedules.namespace = schedule_runs.namespace AND schedules.schedule_id = schedule_runs.schedule_id);
ALTER TABLE schedule_runs ADD CONSTRAINT schedule_runs_schedule
    FOREIGN KEY (namespace, schedule_id) REFERENCES schedules DEFERRABLE INITIALLY DEFERRED;

-- Every version in the range of the API: it was null from 1,000,000,000 on.
ALTER TABLE schedules DROP COLUMN version;
ALTER TABLE schedules ADD COLUMN version integer GENERATED ALWAYS AS (
    CASE WHEN replace(launcher, '\u0000', '\u0001')::json ->> 'version' ~ '^[0-9]{1,10}$'
            AND (replace(launcher, '\u0000', '\u0001')::json ->> 'version')::bigint <= 2147483647
        THEN (replace(launcher, '\u0000', '\u0001')::json ->> 'version')::integer END
) STORED;

-- Timestamps as RFC 3339 in UTC, whatever time zone a session has. The same views in every database.
CREATE FUNCTION kron_time(milliseconds bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(to_timestamp(milliseconds / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;
CREATE FUNCTION kron_second(seconds bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(to_timestamp(seconds) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') $$;

CREATE VIEW kron_schedules AS
SELECT
    namespace, schedule_id, workflow_id, version, user_id, cron_expr, timezone, start_at, end_at,
    kron_second(next_time) AS next_run_at, paused, suspended, jitter_ms, overlap_policy, catchup_policy,
    kron_time(changed_at) AS updated_at, kron_time(schedules.deleted_at) AS deleted_at, definition, launcher, epoch
FROM schedules;

CREATE VIEW kron_runs AS
SELECT
    namespace, idempotency_key, schedule_id, kron_second(nominal_time) AS run_at, kron_time(fire_time) AS fire_at,
    status, reason, run_id, kind, attempt, kron_time(began_at) AS started_at, kron_time(over_at) AS ended_at,
    result, error, kron_time(made_at) AS created_at, kron_time(changed_at) AS updated_at
FROM schedule_runs;

CREATE VIEW kron_attempts AS
SELECT
    namespace, schedule_runs.schedule_id, idempotency_key, schedule_attempts.attempt, schedule_attempts.run_id,
    kron_time(schedule_attempts.began_at) AS started_at, kron_time(schedule_attempts.over_at) AS ended_at,
    schedule_attempts.result, schedule_attempts.error
FROM schedule_attempts JOIN schedule_runs USING (namespace, idempotency_key);

CREATE VIEW kron_ranges AS
SELECT
    namespace, schedule_id, kron_second(first) AS first_run_at, kron_second(last) AS last_run_at, periods, outcome,
    reason, epoch, kron_time(made_at) AS created_at
FROM schedule_ranges;

CREATE VIEW kron_epochs AS
SELECT namespace, schedule_id, epoch, kron_time(made_at) AS created_at, definition FROM schedule_epochs;

CREATE VIEW kron_workflows AS
SELECT workflow_id, version, user_id, kron_time(created_at) AS created_at, dag FROM workflows;

CREATE VIEW kron_audit AS
SELECT
    number, namespace, kron_time(at) AS created_at, who, request_id, action, schedule_id, user_id, before, after
FROM schedule_audit;

CREATE VIEW kron_leases AS
SELECT namespace, shard, owner, token, kron_time(expires_at) AS expires_at FROM leases;

CREATE VIEW kron_clock_excursions AS
SELECT
    namespace, event, owner, kron_time(found_at) AS found_at, kron_time(reference) AS reference_at,
    kron_time(over_at) AS ended_at, ending, reopened
FROM clock_excursions;

CREATE VIEW kron_reopened AS
SELECT
    namespace, schedule_id, kron_second(first) AS first_run_at, kron_second(last) AS last_run_at, periods, outcome,
    reason, epoch, kron_time(made_at) AS created_at, kron_time(reopened_at) AS reopened_at
FROM schedule_reopened;
