-- Every statement of the PostgreSQL store, by name. {run.columns} and the like are generated from the records' fields.
-- Rows come as arrays, one per column, so that any number of rows is one statement. The namespace is such a column
-- too in joins: as a single value, a planner without statistics would search by it first.

-- name: database_now
SELECT coalesce(%(now)s::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)

-- name: version
SELECT pg_snapshot_xmax(pg_current_snapshot())::text

-- name: lock_namespace
SELECT pg_advisory_xact_lock(1802661742, hashtext(%(namespace)s))

-- name: make_leases
INSERT INTO leases (namespace, shard, token)
SELECT %(namespace)s, shard, 0 FROM generate_series(0, %(shards)s - 1) AS shard
ON CONFLICT DO NOTHING

-- name: has_free
SELECT count(*) < %(all)s OR bool_or(owner IS NULL OR expires_at + %(margin)s
    <= coalesce(%(now)s::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))
FROM leases WHERE namespace = %(namespace)s

-- name: last_owner
SELECT owner IS NULL OR expires_at
    <= coalesce(%(now)s::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    owner, last_owner, CASE WHEN owner IS NULL THEN released_at ELSE expires_at END
FROM leases WHERE namespace = %(namespace)s AND shard = %(shard)s

-- name: leases
SELECT owner, array_agg(shard ORDER BY shard) FILTER (WHERE shard IS NOT NULL), max(expires_at)
FROM (
    SELECT owner COLLATE "C" AS owner, shard, expires_at FROM leases
    WHERE namespace = %(namespace)s AND owner IS NOT NULL
    UNION ALL
    SELECT owner, NULL, expires_at FROM workers WHERE namespace = %(namespace)s
) AS leased GROUP BY owner ORDER BY owner

-- name: drains
SELECT owner, asked_at, seen_at FROM drains WHERE namespace = %(namespace)s ORDER BY owner

-- name: drain
SELECT seen_at FROM drains WHERE namespace = %(namespace)s AND owner = %(owner)s

-- name: saw_drained
UPDATE drains SET seen_at = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
WHERE namespace = %(namespace)s AND owner = %(owner)s

-- name: insert_drain
INSERT INTO drains (namespace, owner, asked_at) VALUES (%(namespace)s, %(owner)s, %(now)s) ON CONFLICT DO NOTHING

-- name: delete_drain
DELETE FROM drains WHERE namespace = %(namespace)s AND owner = %(owner)s

-- name: drop_old_drains
DELETE FROM drains WHERE namespace = %(namespace)s AND greatest(asked_at, seen_at) < %(old)s

-- name: last_take_overs
SELECT DISTINCT ON (ended_by) ended_by, until_at, detail FROM incidents
WHERE namespace = %(namespace)s AND schedule_id IS NULL AND kind = 'take_over' AND ended_by = ANY (%(owners)s::text[])
ORDER BY ended_by, until_at DESC

-- name: take_leases
WITH free AS (
    SELECT shard FROM leases
    WHERE namespace = %(namespace)s AND (owner IS NULL OR expires_at + %(margin)s <= %(now)s)
    ORDER BY shard LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), before AS MATERIALIZED (
    SELECT shard, owner, last_owner, CASE WHEN owner IS NULL THEN released_at ELSE expires_at END AS ended_at
    FROM leases JOIN free USING (shard) WHERE leases.namespace = %(namespace)s
), fresh AS MATERIALIZED (
    SELECT nextval('kron_token') AS token
)
UPDATE leases SET owner = %(owner)s, token = fresh.token, expires_at = %(now)s + %(ttl)s
FROM before, fresh WHERE leases.namespace = %(namespace)s AND leases.shard = before.shard
RETURNING leases.shard, leases.token, before.owner, before.last_owner, before.ended_at

-- name: keep_leases
UPDATE leases SET expires_at = %(now)s + %(ttl)s
FROM unnest(%(shards)s::smallint[], %(tokens)s::bigint[]) AS mine (shard, token)
WHERE leases.namespace = %(namespace)s AND leases.shard = mine.shard AND leases.token = mine.token
    AND leases.owner = %(owner)s
RETURNING leases.shard, leases.token

-- name: free_leases
UPDATE leases SET owner = NULL, expires_at = NULL, last_owner = leases.owner,
    released_at = coalesce(%(now)s::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
FROM unnest(%(shards)s::smallint[], %(tokens)s::bigint[]) AS mine (shard, token)
WHERE leases.namespace = %(namespace)s AND leases.shard = mine.shard AND leases.token = mine.token
    AND leases.owner = %(owner)s

-- name: high
SELECT greatest(
    coalesce((SELECT high FROM marks WHERE namespace = %(namespace)s), 0),
    coalesce((SELECT max(changed_at) FROM schedules WHERE namespace = %(namespace)s), 0))

-- name: high_of_shards
SELECT coalesce(max(changed_at), 0) FROM schedules
WHERE namespace = %(namespace)s AND shard = ANY (%(shards)s::smallint[])

-- name: record_high
INSERT INTO marks (namespace, high) VALUES (%(namespace)s, %(now)s)
ON CONFLICT (namespace) DO UPDATE SET high = greatest(marks.high, excluded.high)

-- name: set_high
INSERT INTO marks (namespace, high) VALUES (%(namespace)s, %(now)s)
ON CONFLICT (namespace) DO UPDATE SET high = excluded.high

-- name: ahead_jobs
AND changed_at > %(since)s AND schedule_id > %(after)s AND shard = ANY (%(shards)s::smallint[])
ORDER BY schedule_id LIMIT %(limit)s

-- name: recorded_runs
SELECT {run.columns}
FROM schedule_runs JOIN unnest(%(names)s::text[], %(after)s::bigint[]) AS wanted (name, after)
    ON schedule_id = wanted.name AND nominal_time > wanted.after
WHERE namespace = %(namespace)s

-- name: recorded_ranges
SELECT {range.columns}
FROM schedule_ranges JOIN unnest(%(names)s::text[], %(after)s::bigint[]) AS wanted (name, after)
    ON schedule_id = wanted.name AND last > wanted.after
WHERE namespace = %(namespace)s

-- name: remove_runs
DELETE FROM schedule_runs WHERE namespace = %(namespace)s AND idempotency_key = ANY (%(keys)s::text[])

-- name: remove_ranges
DELETE FROM schedule_ranges USING unnest(%(names)s::text[], %(first)s::bigint[]) AS gone (name, first)
WHERE namespace = %(namespace)s AND schedule_id = gone.name AND schedule_ranges.first = gone.first

-- name: insert_reopened
INSERT INTO schedule_reopened (namespace, {reopened.columns})
SELECT %(namespace)s, * FROM unnest({reopened.arrays})
ON CONFLICT DO NOTHING

-- name: reopened
SELECT {reopened.columns} FROM schedule_reopened
WHERE namespace = %(namespace)s AND schedule_id = %(name)s AND first <= %(at)s AND last >= %(at)s
ORDER BY reopened_at

-- name: note_clock
INSERT INTO clock_excursions (namespace, {clock.columns})
VALUES (%(namespace)s, {clock.values})
ON CONFLICT (namespace, event, found_at, owner)
DO UPDATE SET over_at = excluded.over_at, ending = excluded.ending, reopened = excluded.reopened

-- name: trim_clock
DELETE FROM clock_excursions WHERE namespace = %(namespace)s AND number NOT IN (
    SELECT number FROM clock_excursions WHERE namespace = %(namespace)s ORDER BY number DESC LIMIT %(limit)s)

-- name: clock_records
SELECT {clock.columns} FROM clock_excursions WHERE namespace = %(namespace)s ORDER BY number DESC LIMIT %(limit)s

-- name: insert_incidents
INSERT INTO incidents (namespace, {incident.columns})
SELECT %(namespace)s, * FROM unnest({incident.arrays})

-- name: close_incidents
-- By their numbers, each found by its schedule: without statistics a planner would else compare each with every one.
UPDATE incidents SET until_at = closed.until_at, ended_by = closed.ended_by
FROM (
    SELECT open.number, ending.until_at, ending.ended_by
    FROM unnest({incident.arrays}) AS ending ({incident.fields}) CROSS JOIN LATERAL (
        SELECT number FROM incidents WHERE namespace = %(namespace)s AND schedule_id = ending.identity
            AND kind = ending.kind AND until_at IS NULL OFFSET 0
    ) AS open
) AS closed
WHERE incidents.number = closed.number

-- name: incidents
-- Those of the schedule and those of the namespace, each by the index, without those of other schedules.
SELECT {incident.columns} FROM (
    SELECT * FROM (SELECT * FROM incidents WHERE namespace = %(namespace)s AND schedule_id = %(name)s
        AND from_at <= %(until)s AND coalesce(until_at, %(until)s) >= %(since)s OFFSET 0) AS own
    UNION ALL
    SELECT * FROM (SELECT * FROM incidents WHERE namespace = %(namespace)s AND schedule_id IS NULL
        AND from_at <= %(until)s AND coalesce(until_at, %(until)s) >= %(since)s OFFSET 0) AS common
) AS found ORDER BY number DESC LIMIT %(limit)s

-- name: note_worker
INSERT INTO workers (namespace, owner, expires_at) VALUES (%(namespace)s, %(owner)s, %(now)s + %(ttl)s)
ON CONFLICT (namespace, owner) DO UPDATE SET expires_at = excluded.expires_at
RETURNING xmax = 0

-- name: drop_dead_workers
DELETE FROM workers WHERE namespace = %(namespace)s AND expires_at + %(margin)s <= %(now)s

-- name: drop_worker
DELETE FROM workers WHERE namespace = %(namespace)s AND owner = %(owner)s

-- name: count_workers
SELECT count(*) FROM workers WHERE namespace = %(namespace)s

-- name: worker_rank
SELECT rank, total FROM (
    SELECT owner, row_number() OVER (ORDER BY owner) AS rank, count(*) OVER () AS total
    FROM workers WHERE namespace = %(namespace)s
) AS ranked WHERE owner = %(owner)s

-- name: fence
SELECT count(*) FROM (
    SELECT 1 FROM leases JOIN unnest(%(shards)s::smallint[], %(tokens)s::bigint[]) AS mine (shard, token)
        ON leases.shard = mine.shard AND leases.token = mine.token
    WHERE leases.namespace = %(namespace)s AND leases.owner = %(owner)s
    ORDER BY leases.shard FOR SHARE OF leases
) AS held

-- name: due_jobs
AND plan_at <= %(until)s ORDER BY plan_at LIMIT %(limit)s

-- name: due_besides
-- What is due comes first, and its schedules are looked up: without statistics each schedule would be compared with all.
SELECT due.name FROM (
    SELECT schedule_id AS name, min(at) AS at FROM (
        SELECT schedule_id, plan_at AS at FROM schedules WHERE namespace = %(namespace)s AND plan_at <= %(until)s
        UNION ALL
        SELECT schedule_id, due_at FROM schedule_runs WHERE namespace = %(namespace)s AND due_at <= %(until)s
    ) AS each_due GROUP BY schedule_id
) AS due CROSS JOIN LATERAL (
    SELECT 1 FROM schedules WHERE namespace = %(namespace)s AND schedule_id = due.name
        AND shard = ANY (%(shards)s::smallint[]) AND coalesce(user_id, '') <> ALL (%(tenants)s::text[]) OFFSET 0
) AS own ORDER BY due.at LIMIT %(limit)s

-- name: serves_others
-- Both sides of the tenant in the index, so that a million jobs of one tenant take no longer than a few.
(SELECT 1 FROM schedules WHERE namespace = %(namespace)s AND user_id < %(tenant)s LIMIT 1) UNION ALL
(SELECT 1 FROM schedules WHERE namespace = %(namespace)s AND user_id > %(tenant)s LIMIT 1) UNION ALL
(SELECT 1 FROM namespaces_without_user WHERE namespace = %(namespace)s AND %(tenant)s <> '')
LIMIT 1

-- name: runs_with_due_at
SELECT schedule_id, due_at FROM schedule_runs WHERE namespace = %(namespace)s

-- name: due_runs
AND due_at <= %(until)s ORDER BY due_at LIMIT %(limit)s

-- name: next_at
SELECT least(
    (SELECT min(plan_at) FROM schedules WHERE namespace = %(namespace)s AND plan_at > %(until)s),
    (SELECT min(due_at) FROM schedule_runs WHERE namespace = %(namespace)s AND due_at > %(until)s)
), (SELECT high FROM marks WHERE namespace = %(namespace)s)

-- name: next_at_of_shards
SELECT least(
    (SELECT plan_at FROM schedules WHERE namespace = %(namespace)s AND plan_at > %(until)s
        AND shard = ANY (%(shards)s::smallint[]) ORDER BY plan_at LIMIT 1),
    (SELECT due_at FROM schedule_runs WHERE namespace = %(namespace)s AND due_at > %(until)s
        AND shard = ANY (%(shards)s::smallint[]) ORDER BY due_at LIMIT 1)
), (SELECT high FROM marks WHERE namespace = %(namespace)s)

-- name: jobs
SELECT {job.read}
FROM schedules WHERE namespace = %(namespace)s

-- name: list_jobs
SELECT {job.read}, changed_at
FROM schedules WHERE namespace = %(namespace)s AND schedule_id > %(after)s

-- name: used_namespaces
-- One index lookup for each namespace, not one for each schedule.
WITH RECURSIVE used (name) AS (
    SELECT min(namespace) FROM schedules
    UNION ALL
    SELECT (SELECT min(namespace) FROM schedules WHERE namespace > used.name) FROM used WHERE used.name IS NOT NULL
)
SELECT name FROM used WHERE name IS NOT NULL

-- name: count_jobs
SELECT count(*) FROM schedules WHERE namespace = %(namespace)s

-- name: count_open_runs
SELECT state, count(*) FROM (
    SELECT CASE WHEN status = 'FAILED' THEN 'retrying' WHEN status <> 'PENDING' THEN 'under_way'
        WHEN due_at IS NULL THEN 'held' WHEN due_at > %(now)s THEN 'planned' ELSE 'due' END AS state
    FROM schedule_runs WHERE is_open = 1 AND namespace = %(namespace)s LIMIT %(limit)s
) AS open GROUP BY state

-- name: open_by_user
-- As a join, without statistics, it would compare every open run with every schedule of the users.
SELECT user_id, sum(open)::bigint FROM (
    SELECT user_id, (
        SELECT count(*) FROM schedule_runs
        WHERE schedule_runs.namespace = schedules.namespace AND schedule_runs.schedule_id = schedules.schedule_id AND is_open = 1
    ) AS open FROM schedules WHERE namespace = %(namespace)s AND user_id = ANY (%(users)s::text[])
) AS counted GROUP BY user_id

-- name: jobs_by_names
AND schedule_id = ANY (%(names)s::text[])

-- name: jobs_by_search
AND position(lower(%(search)s::text COLLATE "C") IN lower(schedule_id)) > 0

-- name: jobs_by_paused
AND paused = %(paused)s

-- name: jobs_by_suspended
AND suspended = %(suspended)s

-- name: jobs_by_failing
AND (failures > 0) = %(failing)s

-- name: jobs_by_workflow_id
AND workflow_id = %(workflow_id)s

-- name: jobs_by_user_id
AND user_id = %(user_id)s

-- name: jobs_by_users
AND user_id = ANY (%(users)s::text[])

-- name: jobs_by_tag
AND profile::jsonb -> 'tags' ? %(tag)s::text

-- name: jobs_by_applied_set
AND applied_set = %(applied_set)s

-- name: jobs_by_timezone
AND timezone = %(timezone)s

-- name: jobs_by_launcher_kind
AND launcher_kind = %(launcher_kind)s

-- name: jobs_by_not_deleted
AND deleted_at IS NULL

-- name: group_jobs
-- The tag is read from each different profile once, not for each schedule; a long definition is not returned.
SELECT CASE WHEN length(definition) <= %(longest)s THEN definition ELSE '' END, profile::jsonb -> 'tags' ->> 0, stopped, irregular, sum(jobs)::bigint, min(name) FROM (
    SELECT definition, profile, (paused OR suspended)::integer AS stopped,
        (remaining IS NOT NULL OR past IS NOT NULL OR handled IS NOT NULL OR paused_until IS NOT NULL)::integer AS irregular,
        count(*) AS jobs, min(schedule_id) AS name
    FROM schedules WHERE namespace = %(namespace)s {own} GROUP BY definition, profile, stopped, irregular {singly}
) AS alike GROUP BY 1, 2, 3, 4 {singly}

-- name: groups_in_order
ORDER BY 5 DESC, 6 LIMIT %(limit)s

-- name: single_groups_in_order
ORDER BY 6 LIMIT %(limit)s

-- name: jobs_by_due_by
AND (plan_at <= %(due_by)s OR schedule_id IN (
    SELECT schedule_id FROM schedule_runs WHERE namespace = %(namespace)s AND due_at <= %(due_by)s
))

-- name: jobs_by_definitions
AND definition = ANY (%(definitions)s::text[])

-- name: jobs_by_irregular
AND (remaining IS NOT NULL OR past IS NOT NULL OR handled IS NOT NULL OR paused_until IS NOT NULL) = %(irregular)s

-- name: count_made
-- Of all schedules: the index of records in their order is enough. Each part is a range of it, which is counted without
-- a group for each run.
SELECT part, made FROM generate_series(0::bigint, (%(made_until)s - 1 - %(start)s) / %(width)s) AS part CROSS JOIN LATERAL (
    SELECT count(*) AS made FROM schedule_runs WHERE namespace = %(namespace)s
        AND made_at >= %(start)s + part * %(width)s AND made_at < least(%(start)s + (part + 1) * %(width)s, %(made_until)s)
) AS counted WHERE made > 0

-- name: count_own
-- Of some schedules: the history of each is in an index.
SELECT (1000 * nominal_time - %(start)s) / %(width)s, count(*) FROM schedule_runs JOIN (
    SELECT schedule_id FROM schedules WHERE namespace = %(namespace)s {own}
) AS own USING (schedule_id)
WHERE namespace = %(namespace)s AND nominal_time >= %(start)s / 1000 AND nominal_time < %(made_until)s / 1000 GROUP BY 1

-- name: has_made
-- Whether all schedules together have at least so many runs in a time.
SELECT count(*) >= %(least)s FROM (
    SELECT 1 FROM schedule_runs
    WHERE namespace = %(namespace)s AND made_at >= %(made_from)s AND made_at < %(made_until)s LIMIT %(least)s
) AS made

-- name: tally_runs
-- What stands outside is left out after counting: as conditions they would be estimated far too low. The tag is read
-- from each different profile once, not for each run.
WITH own AS NOT MATERIALIZED (
    SELECT schedule_id, profile FROM schedules WHERE namespace = %(namespace)s {own}
), {read}, counted (part, profile, status, dropped, runs, started, name) AS (
    SELECT CASE WHEN at BETWEEN %(start)s AND %(end)s - 1 THEN (at - %(start)s) / %(width)s END, profile,
        CASE WHEN is_open = 1 AND status = 'FAILED' THEN 'PENDING' ELSE status END, dropped,
        sum(runs)::bigint, count(began_at), max(schedule_id)
    FROM seen GROUP BY 1, 2, 3, 4
)
SELECT part, profile::jsonb -> 'tags' ->> 0, status, dropped, sum(runs)::bigint, sum(started)::bigint, max(name)
FROM counted WHERE part IS NOT NULL GROUP BY 1, 2, 3, 4

-- name: read_of_all
-- The runs are read first, in the order of their records: of all schedules with a tag, the planner would read every run.
made AS {barrier} (
    SELECT schedule_id, coalesce(began_at, fire_time) AS at, began_at, is_open, status, 0 AS dropped, 1 AS runs
    FROM schedule_runs
    WHERE namespace = %(namespace)s AND made_at >= %(made_from)s AND made_at < %(made_until)s
        AND (status <> 'PENDING' OR fire_time <= %(now)s) {which}
    UNION ALL
    SELECT schedule_id, {range_at}, NULL, 0, upper(outcome), 1, periods FROM schedule_ranges
    WHERE namespace = %(namespace)s AND made_at >= %(start)s
), seen AS (SELECT * FROM made JOIN own USING (schedule_id))

-- name: read_of_each
-- The history of each schedule has the runs whose nominal time is near their record; an index has the others, and no more.
seen AS (
    SELECT profile, made.* FROM own CROSS JOIN LATERAL (
        SELECT schedule_id, coalesce(began_at, fire_time) AS at, began_at, is_open, status, 0 AS dropped, 1 AS runs
        FROM schedule_runs WHERE namespace = %(namespace)s AND schedule_id = own.schedule_id
            AND nominal_time >= %(near_from)s AND nominal_time < %(near_until)s
            AND made_at >= %(made_from)s AND made_at < %(made_until)s AND (status <> 'PENDING' OR fire_time <= %(now)s)
        UNION ALL
        SELECT schedule_id, coalesce(began_at, fire_time), began_at, is_open, status, 0, 1
        FROM schedule_runs WHERE namespace = %(namespace)s AND schedule_id = own.schedule_id
            AND abs(made_at - 1000 * nominal_time) > 3600000 AND (nominal_time < %(near_from)s OR nominal_time >= %(near_until)s)
            AND made_at >= %(made_from)s AND made_at < %(made_until)s AND (status <> 'PENDING' OR fire_time <= %(now)s)
        UNION ALL
        SELECT schedule_id, {range_at}, NULL, 0, upper(outcome), 1, periods
        FROM schedule_ranges WHERE namespace = %(namespace)s AND schedule_id = own.schedule_id AND made_at >= %(start)s
    ) AS made
)

-- name: range_at
-- Aggregated periods stand where the last of them does, in the view.
CASE WHEN 1000 * last >= %(start)s AND 1000 * first < %(end)s THEN least(1000 * last, %(end)s - 1) END

-- name: tally_not_ok
AND status IN ('FAILED', 'SKIPPED', 'MISSED', 'UNSCHEDULABLE', 'CANCELLED')

-- name: jobs_in_order
ORDER BY schedule_id LIMIT %(limit)s

-- name: latest_runs
AND (made_at, idempotency_key) < (%(made_at)s, %(key)s)

-- name: latest_by_status
AND status = %(status)s

-- name: latest_open_runs
-- Few runs are open, and they have an index.
AND is_open = 1 AND (made_at, idempotency_key) < (%(made_at)s, %(key)s)

-- name: latest_by_users
AND schedule_id IN (
    SELECT schedule_id FROM schedules WHERE namespace = %(namespace)s AND user_id = ANY (%(users)s::text[]))

-- name: latest_in_order
ORDER BY made_at DESC, idempotency_key DESC LIMIT %(limit)s

-- name: runs
SELECT {run.columns}
FROM schedule_runs WHERE namespace = %(namespace)s

-- name: open_runs
AND is_open = 1

-- name: named
AND schedule_id = ANY (%(names)s::text[])

-- name: by_name
ORDER BY schedule_id

-- name: by_time
ORDER BY nominal_time, idempotency_key

-- name: without
AND schedule_id <> ALL (%(without)s::text[])

-- name: of_shards
AND shard = ANY (%(shards)s::smallint[])

-- name: run_history
AND schedule_id = %(name)s AND nominal_time < %(before)s
ORDER BY nominal_time DESC, kind <> 'period', idempotency_key LIMIT %(limit)s

-- name: newest_runs
SELECT run.* FROM unnest(%(names)s::text[]) AS wanted (name) CROSS JOIN LATERAL (
    SELECT {run.columns}
    FROM schedule_runs WHERE namespace = %(namespace)s AND schedule_id = wanted.name
    ORDER BY nominal_time DESC, kind <> 'period', idempotency_key LIMIT %(limit)s
) AS run
ORDER BY run.nominal_time DESC, run.kind <> 'period', run.idempotency_key

-- name: with_keys
AND idempotency_key = ANY (%(names)s::text[])

-- name: run_counts
-- All runs (without a status), then those that ended without success, then those that are open. Each is counted in an
-- index, without a look at the rows of successful runs: a schedule may have one for each second of a year.
WITH part AS (
    SELECT * FROM unnest(%(starts)s::bigint[], %(ends)s::bigint[]) WITH ORDINALITY AS part (start, until, number)
)
SELECT number - 1, NULL, runs FROM part CROSS JOIN LATERAL (
    SELECT count(*) AS runs FROM schedule_runs
    WHERE namespace = %(namespace)s AND schedule_id = %(name)s AND nominal_time >= part.start AND nominal_time < part.until
) AS counted
UNION ALL
SELECT number - 1, status, runs FROM part CROSS JOIN LATERAL (
    SELECT status, count(*) AS runs FROM schedule_runs
    WHERE namespace = %(namespace)s AND schedule_id = %(name)s AND nominal_time >= part.start AND nominal_time < part.until
        AND status IN ('FAILED', 'SKIPPED', 'MISSED', 'UNSCHEDULABLE', 'CANCELLED') AND is_open = 0 GROUP BY status
) AS counted
UNION ALL
SELECT number - 1, CASE status WHEN 'FAILED' THEN 'PENDING' ELSE status END, count(*) FROM schedule_runs JOIN part
    ON nominal_time >= part.start AND nominal_time < part.until
WHERE namespace = %(namespace)s AND schedule_id = %(name)s AND is_open = 1 GROUP BY 1, 2

-- name: ranges
SELECT {range.columns} FROM schedule_ranges
WHERE namespace = %(namespace)s AND schedule_id = %(name)s AND first <= %(at)s AND last >= %(since)s
ORDER BY first DESC

-- name: some_epochs
SELECT schedule_id, epoch, made_at, definition, kept_until FROM schedule_epochs
JOIN unnest(%(names)s::text[], %(epochs)s::bigint[]) AS asked (name, of) ON schedule_id = name AND epoch = of
WHERE namespace = %(namespace)s

-- name: epochs
SELECT known.* FROM (SELECT DISTINCT unnest(%(names)s::text[]) AS name) AS asked CROSS JOIN LATERAL (
    SELECT schedule_id, epoch, made_at, definition, kept_until FROM schedule_epochs
    WHERE namespace = %(namespace)s AND schedule_id = asked.name ORDER BY epoch DESC LIMIT %(newest)s::bigint
) AS known ORDER BY schedule_id, epoch

-- name: attempts
SELECT {attempt.columns} FROM schedule_attempts
WHERE namespace = %(namespace)s AND idempotency_key = %(key)s ORDER BY attempt

-- name: insert_jobs
INSERT INTO schedules (namespace, changed_at, shard, {new_job.columns})
SELECT %(namespace)s, %(now)s, * FROM unnest(%(shard)s::smallint[], {new_job.arrays})
ON CONFLICT DO NOTHING

-- name: update_jobs
UPDATE schedules SET {changed_job.assignments}, changed_at = %(now)s
FROM unnest(%(namespaces)s::text[], %(expected)s::bigint[], %(identity)s::text[], {changed_job.arrays})
    AS new (namespace, expected, identity, {changed_job.fields})
WHERE schedules.namespace = new.namespace AND schedules.schedule_id = new.identity
    AND schedules.revision = new.expected

-- name: insert_runs
INSERT INTO schedule_runs (namespace, changed_at, shard, {run.columns})
SELECT %(namespace)s, %(now)s, * FROM unnest(%(shard)s::smallint[], {run.arrays})
ON CONFLICT DO NOTHING

-- name: start_together
-- After `advance_together`, which has locked the schedules of these runs.
INSERT INTO schedule_runs (namespace, changed_at, {shared_run.columns}, shard, idempotency_key, schedule_id, token)
SELECT %(namespace)s, %(now)s, {shared_run.values}, new.*
FROM set_config('kron.schedules_changed', 'yes', true) CROSS JOIN
    unnest(%(shard)s::smallint[], %(key)s::text[], %(identity)s::text[], %(token)s::bigint[]) AS new
ON CONFLICT DO NOTHING

-- name: advance_together
UPDATE schedules SET revision = schedules.revision + 1, cursor = %(cursor)s, next_time = %(next_time)s::bigint,
    plan_at = %(plan_at)s::bigint, last_start_at = %(last_start_at)s, changed_at = %(now)s
FROM unnest(%(namespaces)s::text[], %(identity)s::text[], %(expected)s::bigint[]) AS new (namespace, identity, expected)
WHERE schedules.namespace = new.namespace AND schedules.schedule_id = new.identity
    AND schedules.revision = new.expected

-- name: update_runs
UPDATE schedule_runs SET {changed_run.assignments}, changed_at = %(now)s
FROM unnest(%(namespaces)s::text[], %(key)s::text[], {changed_run.arrays}) AS new (namespace, key, {changed_run.fields})
WHERE schedule_runs.namespace = new.namespace AND schedule_runs.idempotency_key = new.key

-- name: hold_runs
UPDATE schedule_runs SET due_at = NULL, changed_at = %(now)s
WHERE namespace = %(namespace)s AND schedule_id = ANY (%(names)s::text[]) AND due_at IS NOT NULL
    AND NOT (status = 'FAILED' AND due_at > %(now)s)

-- name: insert_attempts
INSERT INTO schedule_attempts (namespace, {attempt.columns})
SELECT %(namespace)s, * FROM unnest({attempt.arrays})
ON CONFLICT DO NOTHING

-- name: insert_ranges
INSERT INTO schedule_ranges (namespace, {range.columns})
SELECT %(namespace)s, * FROM unnest({range.arrays})

-- name: keep_epochs
INSERT INTO schedule_epochs (namespace, schedule_id, epoch, made_at, definition, kept_until)
SELECT schedules.namespace, schedule_id, schedules.epoch, edited_at, definition, kept_until
FROM schedules JOIN unnest(%(namespaces)s::text[], %(identity)s::text[], %(epoch)s::bigint[])
    AS new (namespace, identity, epoch)
    ON schedules.namespace = new.namespace AND schedule_id = new.identity AND schedules.epoch <> new.epoch
ON CONFLICT DO NOTHING

-- name: revisions
SELECT schedule_id, revision FROM schedules
WHERE namespace = %(namespace)s AND schedule_id = ANY (%(names)s::text[]) ORDER BY schedule_id FOR UPDATE

-- name: existing_keys
SELECT idempotency_key FROM schedule_runs
WHERE namespace = %(namespace)s AND idempotency_key = ANY (%(names)s::text[])

-- name: forget_attempts
DELETE FROM schedule_attempts WHERE namespace = %(namespace)s AND idempotency_key = ANY (ARRAY(
    SELECT idempotency_key FROM schedule_runs
    WHERE namespace = %(namespace)s AND schedule_id = ANY (%(names)s::text[])))

-- name: forget_runs
DELETE FROM schedule_runs WHERE namespace = %(namespace)s AND schedule_id = ANY (%(names)s::text[])

-- name: forget_ranges
DELETE FROM schedule_ranges WHERE namespace = %(namespace)s AND schedule_id = ANY (%(names)s::text[])

-- name: forget_epochs
DELETE FROM schedule_epochs WHERE namespace = %(namespace)s AND schedule_id = ANY (%(names)s::text[])

-- name: forget_jobs
DELETE FROM schedules WHERE namespace = %(namespace)s AND schedule_id = ANY (%(names)s::text[])

-- name: insert_audit
INSERT INTO schedule_audit (namespace, {audit.columns})
SELECT %(namespace)s, * FROM unnest({audit.arrays})

-- name: audits
SELECT number, {audit.columns} FROM schedule_audit
WHERE namespace = %(namespace)s AND at <= %(at)s

-- name: own_audits
-- The entries of each user are in an index, in their order. In the order of all, those of others would be read, too.
SELECT latest.* FROM unnest(%(users)s::text[]) AS users (name) CROSS JOIN LATERAL (
    SELECT number, {audit.columns} FROM schedule_audit
    WHERE namespace = %(namespace)s AND user_id = users.name AND at <= %(at)s {which}
    ORDER BY at DESC, number DESC LIMIT %(limit)s::bigint + %(listed)s::bigint
) AS latest ORDER BY latest.at DESC, latest.number DESC LIMIT %(limit)s OFFSET %(listed)s

-- name: audits_of_schedule
-- In the order of all, the entries of other schedules would be read, too.
WITH found AS MATERIALIZED (
    SELECT number, at FROM schedule_audit WHERE namespace = %(namespace)s AND at <= %(at)s {which}
)
SELECT entry.* FROM (
    SELECT number FROM found ORDER BY at DESC, number DESC LIMIT %(limit)s OFFSET %(listed)s
) AS latest CROSS JOIN LATERAL (
    SELECT number, {audit.columns} FROM schedule_audit WHERE number = latest.number OFFSET 0
) AS entry ORDER BY entry.at DESC, entry.number DESC

-- name: audits_by_identity
AND schedule_id = %(identity)s

-- name: audits_by_who
AND who = %(who)s

-- name: audits_in_order
ORDER BY at DESC, number DESC LIMIT %(limit)s OFFSET %(listed)s

-- name: notify
SELECT pg_notify('kron', %(message)s)

-- name: listen
LISTEN kron

-- name: insert_notices
INSERT INTO schedule_notices (namespace, {new_notice.columns})
SELECT %(namespace)s, * FROM unnest({new_notice.arrays})
ON CONFLICT DO NOTHING

-- name: pending_notices
SELECT {notice.columns} FROM (
    SELECT *, row_number() OVER (PARTITION BY split_part(schedule_id, '/', 1) ORDER BY place, number) AS own
    FROM (
        SELECT *, row_number() OVER (PARTITION BY target ORDER BY batch IS NULL, turn, number) AS place
        FROM (
            SELECT *, row_number() OVER (
                PARTITION BY target, split_part(schedule_id, '/', 1) ORDER BY number) AS turn
            FROM schedule_notices WHERE namespace = %(namespace)s AND state = 'pending') AS pending) AS taken
    WHERE place <= %(limit)s OR batch IS NOT NULL) AS placed
WHERE own <= %(of_owner)s ORDER BY number

-- name: give_up_notices
UPDATE schedule_notices SET state = 'failed', due_at = NULL, over_at = %(now)s, error = %(error)s
WHERE number IN (
    SELECT number FROM (
        SELECT number,
            row_number() OVER (PARTITION BY split_part(schedule_id, '/', 1) ORDER BY number DESC) AS place
        FROM schedule_notices WHERE namespace = %(namespace)s AND state = 'pending') AS pending
    WHERE place > %(most)s)

-- name: update_notices
UPDATE schedule_notices SET {changed_notice.assignments}
FROM unnest(%(number)s::bigint[], {changed_notice.arrays}) AS new (number, {changed_notice.fields})
WHERE schedule_notices.namespace = %(namespace)s AND schedule_notices.number = new.number

-- name: remove_notices
DELETE FROM schedule_notices WHERE namespace = %(namespace)s AND number = ANY (%(numbers)s::bigint[])

-- name: trim_notices
DELETE FROM schedule_notices WHERE namespace = %(namespace)s AND state <> 'pending' AND number <= (
    SELECT number FROM schedule_notices WHERE namespace = %(namespace)s AND state <> 'pending'
    ORDER BY number DESC LIMIT 1 OFFSET %(limit)s)

-- name: notices
SELECT {notice.columns} FROM schedule_notices
WHERE namespace = %(namespace)s AND schedule_id = %(name)s
    AND nominal_time BETWEEN %(first)s AND %(last)s ORDER BY number LIMIT %(limit)s
