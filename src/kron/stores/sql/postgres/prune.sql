-- Pruning: a page of schedules at a time, so that every statement follows an index and ends soon.

-- name: page
SELECT schedule_id, schedule_id, profile FROM schedules WHERE namespace = %(namespace)s AND schedule_id > %(after)s
ORDER BY schedule_id LIMIT %(jobs_limit)s

-- name: prunable
-- `below` is the first nominal time that stays in any case. A schedule deleted before the bound keeps nothing. The
-- newest outcome of any other schedule stays: a settled period or a range, however old.
WITH page AS MATERIALIZED (
    SELECT schedule_id, coalesce(deleted_at < %(before)s, false) AS is_gone, CASE
        WHEN deleted_at < %(before)s THEN 9223372036854775807
        WHEN %(keep_runs)s::bigint = 0 OR kept.nominal_time >= %(before_s)s THEN %(before_s)s
        ELSE kept.nominal_time END AS below
    FROM schedules LEFT JOIN LATERAL (
        SELECT nominal_time FROM schedule_runs AS newest
        WHERE newest.namespace = %(namespace)s AND newest.schedule_id = schedules.schedule_id
        ORDER BY nominal_time DESC LIMIT 1 OFFSET greatest(%(keep_runs)s::bigint - 1, 0)) AS kept ON true
    WHERE namespace = %(namespace)s AND schedule_id = ANY (%(jobs)s::text[])
), prunable AS MATERIALIZED (
    SELECT old.idempotency_key, old.attempt
    FROM page JOIN schedule_runs AS old ON old.schedule_id = page.schedule_id AND old.nominal_time < page.below
    WHERE old.namespace = %(namespace)s AND old.is_open = 0 AND old.changed_at < %(before)s AND (
        page.is_gone
        OR old.kind <> 'period'
        OR EXISTS (
            SELECT 1 FROM schedule_runs AS newer
            WHERE newer.namespace = old.namespace AND newer.schedule_id = old.schedule_id
                AND newer.nominal_time > old.nominal_time AND newer.kind = 'period' AND newer.status <> 'PENDING')
        OR EXISTS (
            SELECT 1 FROM schedule_ranges AS newer
            WHERE newer.namespace = old.namespace AND newer.schedule_id = old.schedule_id
                AND newer.first > old.nominal_time))
    LIMIT %(limit)s
), prunable_ranges AS MATERIALIZED (
    SELECT old.schedule_id, old.first
    FROM page JOIN schedule_ranges AS old ON old.schedule_id = page.schedule_id
    WHERE old.namespace = %(namespace)s AND old.made_at < %(before)s AND (
        page.is_gone
        OR EXISTS (
            SELECT 1 FROM schedule_runs AS newer
            WHERE newer.namespace = old.namespace AND newer.schedule_id = old.schedule_id
                AND newer.nominal_time > old.last AND newer.kind = 'period' AND newer.status <> 'PENDING')
        OR EXISTS (
            SELECT 1 FROM schedule_ranges AS newer
            WHERE newer.namespace = old.namespace AND newer.schedule_id = old.schedule_id
                AND newer.first > old.last))
    LIMIT %(limit)s
), used AS MATERIALIZED (
    SELECT jobs.schedule_id, edited_at, least(
        epoch,
        (SELECT min(stays.epoch) FROM schedule_runs AS stays
            WHERE stays.namespace = %(namespace)s AND stays.schedule_id = jobs.schedule_id
                AND stays.idempotency_key NOT IN (SELECT idempotency_key FROM prunable)),
        (SELECT min(stays.epoch) FROM schedule_ranges AS stays
            WHERE stays.namespace = %(namespace)s AND stays.schedule_id = jobs.schedule_id
                AND (stays.schedule_id, stays.first) NOT IN (SELECT schedule_id, first FROM prunable_ranges))) AS epoch
    FROM page JOIN schedules AS jobs ON jobs.namespace = %(namespace)s AND jobs.schedule_id = page.schedule_id
    WHERE past IS NULL AND EXISTS (
        SELECT 1 FROM schedule_epochs AS old
        WHERE old.namespace = %(namespace)s AND old.schedule_id = jobs.schedule_id AND old.made_at < %(before)s)
), prunable_epochs AS MATERIALIZED (
    -- A definition goes when no record follows it or an older one, and it was replaced before the bound.
    SELECT old.schedule_id, old.epoch FROM used JOIN schedule_epochs AS old
        ON old.namespace = %(namespace)s AND old.schedule_id = used.schedule_id AND old.epoch < used.epoch
    WHERE %(before)s > coalesce((
        SELECT next.made_at FROM schedule_epochs AS next
        WHERE next.namespace = old.namespace AND next.schedule_id = old.schedule_id AND next.epoch = old.epoch + 1),
        used.edited_at)
    ORDER BY old.schedule_id, old.epoch LIMIT %(limit)s
), prunable_jobs AS MATERIALIZED (
    SELECT schedule_id FROM page WHERE is_gone
        AND NOT EXISTS (
            SELECT 1 FROM schedule_runs AS stays
            WHERE stays.namespace = %(namespace)s AND stays.schedule_id = page.schedule_id
                AND stays.idempotency_key NOT IN (SELECT idempotency_key FROM prunable))
        AND NOT EXISTS (
            SELECT 1 FROM schedule_ranges AS stays
            WHERE stays.namespace = %(namespace)s AND stays.schedule_id = page.schedule_id
                AND (stays.schedule_id, stays.first) NOT IN (SELECT schedule_id, first FROM prunable_ranges))
)

-- name: count
SELECT
    (SELECT count(*) FROM prunable),
    (SELECT count(*) FROM prunable JOIN schedule_attempts AS earlier
        ON earlier.namespace = %(namespace)s AND earlier.idempotency_key = prunable.idempotency_key),
    (SELECT count(*) FROM prunable_ranges),
    (SELECT count(*) FROM prunable_epochs),
    (SELECT count(*) FROM prunable_jobs)

-- name: runs
-- Earlier attempts go with their run, and count: a run adds as many records as it had attempts. A run that another
-- transaction holds stays until the next time.
DELETE FROM schedule_runs WHERE namespace = %(namespace)s AND idempotency_key = ANY (ARRAY(
    SELECT idempotency_key FROM schedule_runs
    WHERE namespace = %(namespace)s AND is_open = 0 AND changed_at < %(before)s AND idempotency_key = ANY (ARRAY(
        SELECT idempotency_key
        FROM (SELECT idempotency_key, sum(attempt) OVER (ORDER BY idempotency_key) - attempt AS earlier FROM prunable) AS summed
        WHERE earlier < %(limit)s))
    FOR UPDATE SKIP LOCKED))
RETURNING idempotency_key, attempt

-- name: attempts
DELETE FROM schedule_attempts
WHERE namespace = %(namespace)s AND idempotency_key = ANY (%(runs)s::text[]) RETURNING 1

-- name: ranges
DELETE FROM schedule_ranges
WHERE namespace = %(namespace)s AND (schedule_id, first) IN (SELECT schedule_id, first FROM prunable_ranges) RETURNING 1

-- name: epochs
DELETE FROM schedule_epochs
WHERE namespace = %(namespace)s AND (schedule_id, epoch) IN (SELECT schedule_id, epoch FROM prunable_epochs) RETURNING 1

-- name: jobs
DELETE FROM schedules WHERE namespace = %(namespace)s AND deleted_at < %(before)s
    AND schedule_id = ANY (ARRAY(SELECT schedule_id FROM prunable_jobs))
RETURNING schedule_id

-- name: epochs_of_jobs
DELETE FROM schedule_epochs WHERE namespace = %(namespace)s AND schedule_id = ANY (%(jobs)s::text[]) RETURNING 1

-- name: incidents
DELETE FROM incidents WHERE number IN (
    SELECT number FROM incidents WHERE namespace = %(namespace)s AND until_at < %(before)s LIMIT %(limit)s)
RETURNING 1

-- name: audit_page
SELECT number, namespace = %(namespace)s AND at < %(audit_before)s, at FROM schedule_audit
WHERE number > %(audit)s ORDER BY number LIMIT %(limit)s

-- name: audit
DELETE FROM schedule_audit WHERE number = ANY (%(numbers)s::bigint[]) RETURNING 1
