-- Every statement of the SQLite store, by name. {run.columns} and the like are generated from the records' fields.
-- CROSS JOIN fixes the order of the loops: first the given names, then an index lookup for each.

-- name: namespace
SELECT number FROM namespaces WHERE name = :name

-- name: used_namespaces
SELECT name FROM namespaces WHERE EXISTS (SELECT 1 FROM jobs WHERE jobs.namespace = namespaces.number) ORDER BY name

-- name: new_namespace
INSERT INTO namespaces (name) VALUES (:name) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING number

-- name: due_jobs
SELECT {job.columns}
FROM jobs WHERE namespace = :namespace AND plan_at <= :until AND number NOT IN (SELECT value FROM json_each(:without))
ORDER BY plan_at LIMIT :limit

-- name: due_runs
SELECT DISTINCT job FROM runs WHERE namespace = :namespace AND due_at <= :until
    AND job NOT IN (SELECT value FROM json_each(:without))
ORDER BY due_at LIMIT :limit

-- name: due_besides
SELECT schedule_id FROM jobs JOIN (
    SELECT number AS job, plan_at AS at FROM jobs WHERE namespace = :namespace AND plan_at <= :until
    UNION ALL
    SELECT job, due_at FROM runs WHERE namespace = :namespace AND due_at <= :until
) ON job = number
WHERE number NOT IN (
    SELECT number FROM jobs WHERE namespace = :namespace
        AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END IN (SELECT value FROM json_each(:tenants))
) AND (:keeps_none OR number IN (
    SELECT number FROM jobs WHERE namespace = :namespace
        AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END IS NOT NULL
)) GROUP BY number ORDER BY min(at) LIMIT :limit

-- Both sides of the tenant in the index, so that a million jobs of one tenant take no longer than a few.
-- name: serves_others
SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_user WHERE namespace = :namespace AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END < :tenant)
    OR EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_user WHERE namespace = :namespace AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END > :tenant)
    OR :tenant <> '' AND EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_no_user WHERE namespace = :namespace AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END IS NULL)

-- Texts sort after all numbers, so a damaged due time would never come up.
-- name: damaged_jobs
SELECT job FROM (
    SELECT number AS job FROM jobs WHERE namespace = :namespace AND plan_at >= ''
    UNION ALL
    SELECT job FROM runs WHERE namespace = :namespace AND due_at >= ''
) WHERE job NOT IN (SELECT value FROM json_each(:without)) LIMIT :limit

-- name: next_at
SELECT min(at), (SELECT high FROM marks WHERE namespace = :namespace) FROM (
    SELECT min(plan_at) AS at FROM jobs WHERE namespace = :namespace AND plan_at > :until
    UNION ALL
    SELECT min(due_at) FROM runs WHERE namespace = :namespace AND due_at > :until
)

-- name: all_jobs
SELECT {job.columns}
FROM jobs WHERE namespace = :namespace

-- name: list_jobs
SELECT {job.columns}, changed_at
FROM jobs WHERE namespace = :namespace AND schedule_id > :after

-- name: list_named_jobs
-- Without the plus SQLite would read the name of every job.
SELECT {job.columns}, changed_at
FROM jobs WHERE namespace = :namespace AND +schedule_id > :after

-- name: list_own_named_jobs
-- By user and name: no job of another user is read, which would take as long as its launcher has characters.
SELECT {job.columns}, changed_at
FROM jobs INDEXED BY jobs_user WHERE namespace = :namespace AND +schedule_id > :after

-- name: count_jobs
SELECT count(*) FROM jobs WHERE namespace = :namespace

-- name: count_open_runs
-- Without statistics SQLite would scan the closed runs.
SELECT state, count(*) FROM (
    SELECT CASE WHEN status = 'FAILED' THEN 'retrying' WHEN status <> 'PENDING' THEN 'under_way'
        WHEN due_at IS NULL THEN 'held' WHEN due_at > :now THEN 'planned' ELSE 'due' END AS state
    FROM runs INDEXED BY runs_open WHERE is_open = 1 AND namespace = :namespace LIMIT :limit
) GROUP BY state

-- name: open_by_user
SELECT value, (
    SELECT count(*) FROM jobs INDEXED BY jobs_user CROSS JOIN runs INDEXED BY runs_open ON job = number AND is_open = 1
    WHERE jobs.namespace = :namespace AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END = value
) FROM json_each(:users)

-- name: jobs_by_names
AND schedule_id IN (SELECT value FROM json_each(:names))

-- name: jobs_by_search
AND instr(lower(schedule_id), lower(:search)) > 0

-- name: jobs_by_paused
AND paused = :paused

-- name: jobs_by_suspended
AND suspended = :suspended

-- name: jobs_by_failing
AND (failures > 0) = :failing

-- name: jobs_by_workflow_id
AND json_valid(launcher) AND json_extract(launcher, '$.workflow_id') = :workflow_id

-- name: jobs_by_user_id
AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END = :user_id

-- name: jobs_by_users
AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END IN (SELECT value FROM json_each(:users))

-- name: jobs_by_tag
AND EXISTS (SELECT 1 FROM json_each(iif(json_valid(profile), profile, 'null'), '$.tags') WHERE value = :tag)

-- name: jobs_by_applied_set
AND applied_set = :applied_set

-- name: jobs_by_timezone
AND CASE WHEN json_valid(definition) THEN coalesce(json_extract(definition, '$.timezone'), 'UTC') END = :timezone

-- name: jobs_by_launcher_kind
AND launcher_kind = :launcher_kind

-- name: jobs_by_not_deleted
AND deleted_at IS NULL

-- name: group_jobs
-- The tag is read from each different profile once, not for each job; a long definition is not returned.
SELECT CASE WHEN length(definition) <= :longest THEN definition ELSE '' END, iif(json_valid(profile), profile ->> '$.tags[0]', NULL), stopped, irregular, sum(jobs), min(name) FROM (
    SELECT definition, profile, paused OR suspended AS stopped, (remaining IS NOT NULL OR past IS NOT NULL OR handled IS NOT NULL OR paused_until IS NOT NULL) AS irregular,
        count(*) AS jobs, min(schedule_id) AS name
    FROM jobs WHERE namespace = :namespace {own} GROUP BY definition, profile, stopped, irregular {singly}
) GROUP BY 1, 2, 3, 4 {singly}

-- name: groups_in_order
ORDER BY 5 DESC, 6 LIMIT :limit

-- name: single_groups_in_order
ORDER BY 6 LIMIT :limit

-- name: jobs_by_due_by
AND (plan_at <= :due_by OR number IN (SELECT job FROM runs WHERE namespace = :namespace AND due_at <= :due_by))

-- name: jobs_by_definitions
AND definition IN (SELECT value FROM json_each(:definitions))

-- name: jobs_by_irregular
AND (remaining IS NOT NULL OR past IS NOT NULL OR handled IS NOT NULL OR paused_until IS NOT NULL) = :irregular

-- name: count_made
-- Of all jobs: the index of records in their order is enough. Each part is a range of it, which is counted without a group for each run.
WITH RECURSIVE parts (part) AS (SELECT 0 UNION ALL SELECT part + 1 FROM parts WHERE :start + (part + 1) * :width < :made_until),
counted (part, made) AS (
    SELECT part, (
        SELECT count(*) FROM runs INDEXED BY runs_made WHERE namespace = :namespace
            AND made_at >= :start + part * :width AND made_at < min(:start + (part + 1) * :width, :made_until)
    ) FROM parts
)
SELECT part, made FROM counted WHERE made > 0

-- name: count_own
-- Of some jobs: the history of each is in an index.
WITH own AS MATERIALIZED (SELECT number FROM jobs WHERE namespace = :namespace {own})
SELECT (1000 * nominal_time - :start) / :width, count(*) FROM own CROSS JOIN runs ON job = own.number
WHERE nominal_time >= :start / 1000 AND nominal_time < :made_until / 1000 GROUP BY 1

-- name: count_but_others
-- Of nearly all jobs: the runs of all, without those of the others, which are looked up by job.
WITH RECURSIVE parts (part) AS (SELECT 0 UNION ALL SELECT part + 1 FROM parts WHERE :start + (part + 1) * :width < :made_until),
counted (part, made) AS (
    SELECT part, (
        SELECT count(*) FROM runs INDEXED BY runs_made WHERE namespace = :namespace
            AND made_at >= :start + part * :width AND made_at < min(:start + (part + 1) * :width, :made_until)
    ) FROM parts
),
others AS MATERIALIZED (SELECT number FROM jobs WHERE namespace = :namespace AND (true {own}) IS NOT true),
theirs (part, made) AS (
    SELECT (made_at - :start) / :width, count(*) FROM others CROSS JOIN runs ON job = others.number
    WHERE made_at >= :start AND made_at < :made_until GROUP BY 1
)
SELECT part, counted.made - ifnull(theirs.made, 0) FROM counted LEFT JOIN theirs USING (part)
WHERE counted.made > ifnull(theirs.made, 0)

-- name: has_others
-- Whether the jobs beside some, with their runs, are at least so many.
SELECT count(*) >= :least FROM (
    SELECT 1 FROM jobs LEFT JOIN runs ON job = number WHERE jobs.namespace = :namespace AND (true {own}) IS NOT true LIMIT :least
)

-- name: has_made
-- Whether all jobs together have at least so many runs in a time.
SELECT count(*) >= :least FROM (
    SELECT 1 FROM runs INDEXED BY runs_made
    WHERE namespace = :namespace AND made_at >= :made_from AND made_at < :made_until LIMIT :least
)

-- name: tally_runs
-- Each job is found by its number; the tag is read from each different profile once, not for each run.
WITH own AS NOT MATERIALIZED (SELECT number, profile FROM jobs WHERE namespace = :namespace {own}),
counted (part, profile, status, dropped, runs, started, name) AS (
    SELECT (coalesce(began_at, fire_time) - :start) / :width, profile,
        CASE WHEN is_open = 1 AND status = 'FAILED' THEN 'PENDING' ELSE status END, 0,
        count(*), count(began_at), max(schedule_id)
    FROM {read}
    WHERE made_at >= :made_from AND made_at < :made_until
        AND coalesce(began_at, fire_time) >= :start AND coalesce(began_at, fire_time) < :end
        AND NOT (status = 'PENDING' AND fire_time > :now) {which}
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT (min(1000 * last, :end - 1) - :start) / :width, profile, upper(outcome), 1, sum(periods), 0, max(schedule_id)
    FROM {ranges}
    WHERE 1000 * last >= :start AND 1000 * first < :end
    GROUP BY 1, 2, 3
)
SELECT part, iif(json_valid(profile), profile ->> '$.tags[0]', NULL), status, dropped, sum(runs), sum(started), max(name)
FROM counted GROUP BY 1, 2, 3, 4

-- name: read_of_all
runs INDEXED BY {index} CROSS JOIN own ON own.number = job AND namespace = :namespace

-- name: read_of_each
-- The history of each job has the runs whose nominal time is near their record; an index has the others, and no more.
(
    SELECT profile, schedule_id, made_at, fire_time, began_at, is_open, status
    FROM own CROSS JOIN runs ON job = own.number AND nominal_time >= :near_from AND nominal_time < :near_until
    UNION ALL
    SELECT profile, schedule_id, made_at, fire_time, began_at, is_open, status
    FROM own CROSS JOIN runs INDEXED BY runs_apart ON job = own.number AND abs(made_at - 1000 * nominal_time) > 3600000
        AND made_at >= :made_from AND made_at < :made_until
        AND NOT (nominal_time >= :near_from AND nominal_time < :near_until)
)

-- name: ranges_of_all
ranges CROSS JOIN own ON own.number = job

-- name: ranges_of_each
own CROSS JOIN ranges ON job = own.number

-- name: tally_not_ok
AND status <> 'SUCCESS' AND status <> 'ENQUEUED' AND status <> 'STARTED' AND status <> 'PENDING'

-- name: jobs_in_order
ORDER BY schedule_id LIMIT :limit

-- name: named_jobs
SELECT {job.columns}
FROM json_each(:names) CROSS JOIN jobs ON schedule_id = value WHERE namespace = :namespace

-- name: numbered_jobs
SELECT {job.columns}
FROM json_each(:numbers) CROSS JOIN jobs ON number = value

-- name: open_runs
SELECT {run.columns}
FROM json_each(:numbers) CROSS JOIN runs ON job = value WHERE is_open = 1

-- name: all_open_runs
SELECT {run.columns}
FROM runs WHERE namespace = :namespace AND is_open = 1

-- name: insert_job
INSERT INTO jobs ({new_job.columns}, namespace, changed_at)
VALUES ({new_job.values}, ?, ?)
ON CONFLICT DO NOTHING

-- name: update_job
UPDATE jobs SET {changed_job.assignments}, changed_at = ?
WHERE number = ? AND revision = ?

-- name: insert_run
INSERT INTO runs ({run.columns}, namespace, job, slot, key_number, changed_at)
VALUES ({run.values}, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: start_together
INSERT INTO runs (idempotency_key, token, schedule_id, {shared_run.columns}, namespace, job, slot, key_number, changed_at)
SELECT value ->> 2, ?, schedule_id, {shared_run.values}, namespace, number, 0, value ->> 3, ?
FROM json_each(?) CROSS JOIN jobs ON number = value ->> 0 AND revision = value ->> 1
WHERE true ON CONFLICT DO NOTHING

-- Follows start_together in the same transaction, which has checked the revision of each job.
-- name: advance_together
UPDATE jobs SET revision = revision + 1, cursor = ?, next_time = ?, plan_at = ?, last_start_at = ?, changed_at = ?
WHERE number IN (SELECT value FROM json_each(?))

-- name: end_run
UPDATE runs SET status = ?, over_at = ?, result = ?, error = ?, run_id = ?, due_at = NULL, is_open = 0, acked = 1,
    changed_at = ?
WHERE job = ? AND nominal_time = ? AND slot = ?

-- name: succeed
UPDATE jobs SET revision = revision + 1, failures = 0, last_success_at = ?, changed_at = ?
WHERE number = ? AND revision = ?

-- name: update_run
UPDATE runs SET {changed_run.assignments}, key_number = coalesce(key_number, ?), changed_at = ?
WHERE job = ? AND nominal_time = ? AND slot = ?

-- name: hold_runs
UPDATE runs SET due_at = NULL WHERE job = ? AND due_at IS NOT NULL
    AND NOT (status = 'FAILED' AND typeof(due_at) = 'integer' AND due_at > ?)

-- name: insert_attempt
INSERT INTO attempts (job, {attempt.columns})
VALUES (?, {attempt.values})
ON CONFLICT DO NOTHING

-- name: insert_range
INSERT INTO ranges ({range.columns}, job)
VALUES ({range.values}, ?)
ON CONFLICT DO NOTHING

-- name: keep_epochs
INSERT INTO epochs (job, schedule_id, epoch, made_at, definition, kept_until)
SELECT number, schedule_id, epoch, edited_at, definition, kept_until
FROM json_each(?) CROSS JOIN jobs ON number = json_extract(value, '$[0]')
WHERE epoch < json_extract(value, '$[1]')
ON CONFLICT DO NOTHING

-- name: revisions
SELECT number, revision FROM json_each(:numbers) CROSS JOIN jobs ON number = value

-- name: existing_names
SELECT schedule_id FROM json_each(:names) CROSS JOIN jobs ON schedule_id = value WHERE namespace = :namespace

-- name: existing_keys
SELECT idempotency_key FROM json_each(:rows)
CROSS JOIN runs ON job = value ->> 0 AND nominal_time = value ->> 1 AND slot = value ->> 2
UNION
SELECT idempotency_key FROM json_each(:rows) CROSS JOIN runs ON idempotency_key = value ->> 3
WHERE namespace = :namespace AND slot <> 0

-- name: epochs
SELECT schedule_id, epoch, made_at, definition, kept_until FROM json_each(:numbers) CROSS JOIN epochs ON job = value
ORDER BY schedule_id, epoch

-- name: some_epochs
SELECT schedule_id, epoch, made_at, definition, kept_until FROM json_each(:wanted) AS asked
CROSS JOIN epochs ON job = json_extract(asked.value, '$[0]') AND epoch = json_extract(asked.value, '$[1]')

-- name: newest_epochs
SELECT schedule_id, epoch, made_at, definition, kept_until
FROM json_each(:numbers) AS asked CROSS JOIN epochs ON job = asked.value AND epoch >= coalesce(
    (SELECT last.epoch FROM epochs AS last WHERE last.job = asked.value
     ORDER BY last.epoch DESC LIMIT 1 OFFSET :newest - 1), 0)
ORDER BY schedule_id, epoch

-- name: run_history
SELECT {run.columns}
FROM runs WHERE job = :job AND nominal_time < :before
ORDER BY nominal_time DESC, slot LIMIT :limit

-- name: runs_by_key
SELECT {run.columns}
FROM json_each(:keys) CROSS JOIN runs ON key_number = value ->> 0 AND idempotency_key = value ->> 1
WHERE namespace = :namespace
UNION
SELECT {run.columns}
FROM json_each(:keys) CROSS JOIN runs ON idempotency_key = value ->> 1 AND slot <> 0
WHERE namespace = :namespace

-- name: latest_runs
SELECT {run.columns}
FROM runs WHERE namespace = :namespace AND (made_at, idempotency_key) < (:made_at, :key)

-- name: latest_by_status
AND status = :status

-- name: latest_open_runs
-- Few runs are open, and they have an index; without it every run would be read in the order of records.
SELECT {run.columns}
FROM runs INDEXED BY runs_open
WHERE is_open = 1 AND namespace = :namespace AND (made_at, idempotency_key) < (:made_at, :key)

-- name: latest_by_users
AND job IN (
    SELECT number FROM jobs WHERE namespace = :namespace
        AND CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END IN (SELECT value FROM json_each(:users)))

-- name: latest_in_order
ORDER BY made_at DESC, idempotency_key DESC LIMIT :limit

-- name: newest_runs
SELECT {run.columns} FROM (
    SELECT runs.* FROM json_each(:names) CROSS JOIN jobs ON jobs.schedule_id = value CROSS JOIN runs ON runs.rowid IN (
        SELECT own.rowid FROM runs AS own WHERE own.job = jobs.number
        ORDER BY own.nominal_time DESC, own.slot LIMIT :limit
    )
    WHERE jobs.namespace = :namespace
)
ORDER BY nominal_time DESC, slot

-- name: run_counts
-- All runs (without a status), then those that ended without success, then those that are open. Each is counted in an
-- index, without a look at the rows of successful runs: a schedule may have one for each second of a year.
WITH part (number, start, until) AS (SELECT key, value ->> 0, value ->> 1 FROM json_each(:parts))
SELECT number, NULL, (
    SELECT count(*) FROM runs WHERE job = :job AND nominal_time >= start AND nominal_time < until
) FROM part
UNION ALL
SELECT number, status, count(*) FROM part CROSS JOIN runs INDEXED BY runs_not_ok
    ON job = :job AND nominal_time >= start AND nominal_time < until
WHERE is_open = 0 AND status <> 'SUCCESS' AND status <> 'ENQUEUED' AND status <> 'STARTED' AND status <> 'PENDING'
GROUP BY 1, 2
UNION ALL
SELECT number, CASE status WHEN 'FAILED' THEN 'PENDING' ELSE status END, count(*)
FROM runs INDEXED BY runs_open CROSS JOIN part ON nominal_time >= start AND nominal_time < until
WHERE job = :job AND is_open = 1 GROUP BY 1, 2

-- name: ranges
SELECT {range.columns} FROM ranges
WHERE job = :job AND first <= :at AND last >= :since
ORDER BY first DESC

-- name: attempts
SELECT {attempt.columns} FROM attempts
WHERE job IN (SELECT number FROM jobs WHERE namespace = :namespace) AND idempotency_key = :key
ORDER BY attempt

-- name: token
SELECT token FROM leases WHERE namespace = :namespace AND shard = 0

-- name: high
SELECT max(
    coalesce((SELECT high FROM marks WHERE namespace = :namespace), 0),
    coalesce((SELECT max(changed_at) FROM jobs WHERE namespace = :namespace), 0))

-- name: last_seen
-- The take-over of an owner, and the latest period, start or end that any worker recorded.
SELECT max(
    coalesce((
        SELECT max(until_at) FROM incidents
        WHERE namespace = :namespace AND schedule_id IS NULL AND kind = 'take_over' AND ended_by = :owner), 0),
    coalesce((
        SELECT made_at FROM runs WHERE namespace = :namespace AND kind = 'period' AND typeof(made_at) = 'integer'
        ORDER BY made_at DESC LIMIT 1), 0),
    (
        SELECT max(
            coalesce(max(last_start_at) FILTER (WHERE typeof(last_start_at) = 'integer'), 0),
            coalesce(max(last_success_at) FILTER (WHERE typeof(last_success_at) = 'integer'), 0),
            coalesce(max(last_failure_at) FILTER (WHERE typeof(last_failure_at) = 'integer'), 0))
        FROM jobs WHERE namespace = :namespace))

-- name: record_high
INSERT INTO marks (namespace, high) VALUES (?, ?)
ON CONFLICT (namespace) DO UPDATE SET high = max(high, excluded.high)

-- name: set_high
INSERT INTO marks (namespace, high) VALUES (:namespace, :now)
ON CONFLICT (namespace) DO UPDATE SET high = excluded.high

-- name: ahead_jobs
SELECT {job.columns}
FROM jobs WHERE namespace = :namespace AND changed_at > :since AND schedule_id > :after
ORDER BY schedule_id LIMIT :limit

-- name: recorded_runs
SELECT {run.columns}
FROM json_each(:wanted) CROSS JOIN runs ON job = value ->> 0 AND nominal_time > value ->> 1

-- name: recorded_ranges
SELECT {range.columns}
FROM json_each(:wanted) CROSS JOIN ranges ON job = value ->> 0 AND last > value ->> 1

-- name: remove_run
DELETE FROM runs WHERE job = ? AND nominal_time = ? AND slot = 0

-- name: remove_range
DELETE FROM ranges WHERE job = ? AND first = ?

-- name: insert_reopened
INSERT INTO reopened ({reopened.columns}, job)
VALUES ({reopened.values}, ?)
ON CONFLICT DO NOTHING

-- name: reopened
SELECT {reopened.columns} FROM reopened
WHERE job = :job AND first <= :at AND last >= :at ORDER BY reopened_at

-- name: note_clock
INSERT INTO clock_excursions (namespace, {clock.columns})
VALUES (?, {clock.values})
ON CONFLICT (namespace, event, found_at, owner)
DO UPDATE SET over_at = excluded.over_at, ending = excluded.ending, reopened = excluded.reopened

-- name: trim_clock
DELETE FROM clock_excursions WHERE namespace = :namespace AND number NOT IN (
    SELECT number FROM clock_excursions WHERE namespace = :namespace ORDER BY number DESC LIMIT :limit)

-- name: clock_records
SELECT {clock.columns} FROM clock_excursions WHERE namespace = :namespace ORDER BY number DESC LIMIT :limit

-- name: lease
SELECT owner, last_owner, released_at FROM leases WHERE namespace = :namespace AND shard = 0

-- name: last_take_over
SELECT until_at, detail FROM incidents
WHERE namespace = :namespace AND schedule_id IS NULL AND kind = 'take_over' AND ended_by = :owner
ORDER BY until_at DESC LIMIT 1

-- name: take_over
INSERT INTO leases (namespace, shard, owner, token) VALUES (:namespace, 0, :owner, 1)
ON CONFLICT (namespace, shard) DO UPDATE SET owner = :owner, token = token + 1
RETURNING token

-- name: saw_owner
-- While a lease is held, this is the last time its owner is known to have been alive.
UPDATE leases SET released_at = ? WHERE namespace = ? AND owner IS NOT NULL

-- name: release
UPDATE leases SET owner = NULL, last_owner = owner, released_at = :now
WHERE namespace = :namespace AND shard = 0 AND token = :token

-- name: drains
SELECT owner, asked_at, seen_at FROM drains WHERE namespace = :namespace ORDER BY owner

-- name: drain
SELECT seen_at FROM drains WHERE namespace = :namespace AND owner = :owner

-- name: saw_drained
UPDATE drains SET seen_at = :now WHERE namespace = :namespace AND owner = :owner

-- name: insert_drain
INSERT INTO drains (namespace, owner, asked_at) VALUES (:namespace, :owner, :now) ON CONFLICT DO NOTHING

-- name: delete_drain
DELETE FROM drains WHERE namespace = :namespace AND owner = :owner

-- name: drop_old_drains
DELETE FROM drains WHERE namespace = :namespace AND max(asked_at, coalesce(seen_at, 0)) < :old

-- name: insert_incident
INSERT INTO incidents (namespace, {incident.columns})
VALUES (?, {incident.values})

-- name: close_incident
UPDATE incidents SET until_at = ?, ended_by = ? WHERE number IN (
    -- By their numbers: for many at once, SQLite would else compare each with every incident of the namespace.
    SELECT number FROM incidents AS open INDEXED BY incidents_of_schedule
    WHERE open.namespace = ? AND open.schedule_id = ? AND open.kind = ? AND open.until_at IS NULL)

-- name: incidents
-- Those of the schedule and those of the namespace, each by the index, without those of other schedules.
SELECT {incident.columns} FROM incidents WHERE number IN (
    SELECT number FROM incidents WHERE namespace = :namespace AND schedule_id = :name
    UNION ALL
    SELECT number FROM incidents WHERE namespace = :namespace AND schedule_id IS NULL
) AND from_at <= :until AND coalesce(until_at, :until) >= :since
ORDER BY number DESC LIMIT :limit

-- name: forget_attempts
DELETE FROM attempts WHERE job IN (SELECT value FROM json_each(?))

-- name: forget_runs
DELETE FROM runs WHERE job IN (SELECT value FROM json_each(?))

-- name: forget_ranges
DELETE FROM ranges WHERE job IN (SELECT value FROM json_each(?))

-- name: forget_epochs
DELETE FROM epochs WHERE job IN (SELECT value FROM json_each(?))

-- name: forget_jobs
DELETE FROM jobs WHERE number IN (SELECT value FROM json_each(?))

-- name: insert_audit
INSERT INTO audit (namespace, {audit.columns})
VALUES (?, {audit.values})

-- name: audits
SELECT number, {audit.columns} FROM audit
WHERE namespace = :namespace AND at <= :at

-- name: own_audits
-- The entries of each user are in an index, in their order. In the order of all, those of others would be read, too.
SELECT number, {audit.columns} FROM audit WHERE number IN (
    SELECT number FROM json_each(:users) AS users
        CROSS JOIN audit INDEXED BY {index} ON namespace = :namespace AND user_id = users.value
    WHERE at <= :at {which} ORDER BY at DESC, number DESC LIMIT :limit OFFSET :listed
) ORDER BY at DESC, number DESC

-- name: audits_of_schedule
-- In the order of all, the entries of other schedules would be read, too.
SELECT number, {audit.columns} FROM audit WHERE number IN (
    SELECT number FROM audit INDEXED BY audit_schedule
    WHERE namespace = :namespace AND at <= :at {which} ORDER BY at DESC, number DESC LIMIT :limit OFFSET :listed
) ORDER BY at DESC, number DESC

-- name: audits_by_identity
AND schedule_id = :identity

-- name: audits_by_who
AND who = :who

-- name: audits_in_order
ORDER BY at DESC, number DESC LIMIT :limit OFFSET :listed

-- name: insert_notice
INSERT INTO notices ({new_notice.columns}, namespace, job)
VALUES ({new_notice.values}, ?, ?)
ON CONFLICT DO NOTHING

-- name: pending_notices
SELECT {notice.columns} FROM (
    SELECT *, row_number() OVER (PARTITION BY owner ORDER BY place, number) AS own FROM (
        SELECT *, row_number() OVER (PARTITION BY target ORDER BY batch IS NULL, turn, number) AS place FROM (
            SELECT *, row_number() OVER (PARTITION BY target, owner ORDER BY number) AS turn FROM (
                SELECT *, substr(schedule_id, 1, instr(schedule_id || '/', '/') - 1) AS owner
                FROM notices WHERE namespace = :namespace AND state = 'pending')))
    WHERE place <= :limit OR batch IS NOT NULL)
WHERE own <= :of_owner ORDER BY number

-- name: give_up_notices
UPDATE notices SET state = 'failed', due_at = NULL, over_at = :now, error = :error WHERE number IN (
    SELECT number FROM (
        SELECT number, row_number() OVER (
            PARTITION BY substr(schedule_id, 1, instr(schedule_id || '/', '/') - 1) ORDER BY number DESC) AS place
        FROM notices WHERE namespace = :namespace AND state = 'pending')
    WHERE place > :most)

-- name: update_notice
UPDATE notices SET {changed_notice.assignments} WHERE namespace = ? AND number = ?

-- name: remove_notice
DELETE FROM notices WHERE namespace = ? AND number = ?

-- name: trim_notices
DELETE FROM notices WHERE namespace = :namespace AND state <> 'pending' AND number <= (
    SELECT number FROM notices WHERE namespace = :namespace AND state <> 'pending'
    ORDER BY number DESC LIMIT 1 OFFSET :limit)

-- name: notices
SELECT {notice.columns} FROM notices
WHERE job = :job AND nominal_time BETWEEN :first AND :last ORDER BY number LIMIT :limit
