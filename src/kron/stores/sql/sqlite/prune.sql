-- Pruning: a page of jobs at a time, so that every statement follows an index and ends soon.

-- name: page
SELECT number, schedule_id, profile FROM jobs WHERE namespace = :namespace AND schedule_id > :after
ORDER BY schedule_id LIMIT :jobs_limit

-- name: prunable
-- `below` is the first nominal time that stays in any case. A job deleted before the bound keeps nothing. The newest
-- outcome of any other job stays: a settled period or a range, however old.
WITH page AS MATERIALIZED (
    SELECT number, coalesce(deleted_at < :before, 0) AS is_gone, CASE
        WHEN deleted_at < :before THEN 9223372036854775807
        WHEN :keep_runs = 0 THEN :before_s
        ELSE min(:before_s, (
            SELECT nominal_time FROM runs WHERE job = number
            ORDER BY nominal_time DESC LIMIT 1 OFFSET :keep_runs - 1))
        END AS below
    FROM jobs WHERE number IN (SELECT value FROM json_each(:jobs))
), prunable AS MATERIALIZED (
    SELECT old.rowid AS run, old.job, old.idempotency_key, old.attempt
    FROM page CROSS JOIN runs AS old ON old.job = page.number AND old.nominal_time < page.below
    WHERE old.is_open = 0 AND old.changed_at < :before AND (
        page.is_gone
        OR old.slot <> 0
        OR EXISTS (
            SELECT 1 FROM runs AS newer WHERE newer.job = old.job AND newer.nominal_time > old.nominal_time
                AND newer.slot = 0 AND newer.status <> 'PENDING')
        OR EXISTS (SELECT 1 FROM ranges AS newer WHERE newer.job = old.job AND newer.first > old.nominal_time))
    LIMIT :limit
), prunable_ranges AS MATERIALIZED (
    SELECT old.job, old.first FROM page CROSS JOIN ranges AS old ON old.job = page.number
    WHERE old.made_at < :before AND (
        page.is_gone
        OR EXISTS (
            SELECT 1 FROM runs AS newer WHERE newer.job = old.job AND newer.nominal_time > old.last
                AND newer.slot = 0 AND newer.status <> 'PENDING')
        OR EXISTS (SELECT 1 FROM ranges AS newer WHERE newer.job = old.job AND newer.first > old.last))
    LIMIT :limit
), used AS MATERIALIZED (
    SELECT jobs.number AS job, edited_at, min(
        epoch,
        coalesce((
            SELECT min(stays.epoch) FROM runs AS stays
            WHERE stays.job = jobs.number AND stays.rowid NOT IN (SELECT run FROM prunable)), epoch),
        coalesce((
            SELECT min(stays.epoch) FROM ranges AS stays WHERE stays.job = jobs.number
                AND (stays.job, stays.first) NOT IN (SELECT job, first FROM prunable_ranges)), epoch)) AS epoch
    FROM page JOIN jobs ON jobs.number = page.number
    WHERE past IS NULL AND EXISTS (SELECT 1 FROM epochs WHERE epochs.job = jobs.number AND made_at < :before)
), prunable_epochs AS MATERIALIZED (
    -- A definition goes when no record follows it or an older one, and it was replaced before the bound.
    SELECT old.job, old.epoch FROM used CROSS JOIN epochs AS old ON old.job = used.job AND old.epoch < used.epoch
    WHERE :before > coalesce(
        (SELECT made_at FROM epochs AS next WHERE next.job = old.job AND next.epoch = old.epoch + 1), used.edited_at)
    ORDER BY old.job, old.epoch LIMIT :limit
), prunable_jobs AS MATERIALIZED (
    SELECT number FROM page WHERE is_gone
        AND NOT EXISTS (
            SELECT 1 FROM runs AS stays
            WHERE stays.job = page.number AND stays.rowid NOT IN (SELECT run FROM prunable))
        AND NOT EXISTS (
            SELECT 1 FROM ranges AS stays WHERE stays.job = page.number
                AND (stays.job, stays.first) NOT IN (SELECT job, first FROM prunable_ranges))
)

-- name: count
SELECT
    (SELECT count(*) FROM prunable),
    (SELECT count(*) FROM prunable CROSS JOIN attempts USING (job, idempotency_key)),
    (SELECT count(*) FROM prunable_ranges),
    (SELECT count(*) FROM prunable_epochs),
    (SELECT count(*) FROM prunable_jobs)

-- name: runs
-- Earlier attempts go with their run, and count: a run adds as many records as it had attempts.
DELETE FROM runs WHERE rowid IN (
    SELECT run FROM (SELECT run, sum(attempt) OVER (ORDER BY run) - attempt AS earlier FROM prunable)
    WHERE earlier < :limit)
RETURNING json_array(job, idempotency_key), attempt

-- name: attempts
DELETE FROM attempts WHERE (job, idempotency_key) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:runs))
RETURNING 1

-- name: ranges
DELETE FROM ranges WHERE (job, first) IN (SELECT job, first FROM prunable_ranges) RETURNING 1

-- name: epochs
DELETE FROM epochs WHERE (job, epoch) IN (SELECT job, epoch FROM prunable_epochs) RETURNING 1

-- name: jobs
DELETE FROM jobs WHERE number IN (SELECT number FROM prunable_jobs) AND deleted_at < :before RETURNING number

-- name: epochs_of_jobs
DELETE FROM epochs WHERE job IN (SELECT value FROM json_each(:jobs)) RETURNING 1

-- name: incidents
DELETE FROM incidents WHERE number IN (
    SELECT number FROM incidents WHERE namespace = :namespace AND until_at < :before LIMIT :limit)
RETURNING 1

-- name: audit_page
SELECT number, namespace = :namespace AND at < :audit_before, at FROM audit
WHERE number > :audit ORDER BY number LIMIT :limit

-- name: audit
DELETE FROM audit WHERE number IN (SELECT value FROM json_each(:numbers)) RETURNING 1
