-- name: insert_snapshot
INSERT INTO dag_snapshots (digest, definition) VALUES (:digest, :definition) ON CONFLICT (digest) DO NOTHING

-- name: snapshot
SELECT definition FROM dag_snapshots WHERE digest = :digest

-- name: insert_run
INSERT INTO dag_runs ({dag_run.columns}) VALUES ({dag_run.values}) ON CONFLICT (run_key) DO NOTHING

-- name: insert_task
INSERT INTO dag_tasks ({dag_task.columns}) VALUES ({dag_task.values})

-- name: update_run
UPDATE dag_runs
SET status = :status, cancel = :cancel, revision = :revision, started_at = :started_at, ended_at = :ended_at
WHERE run_id = :run_id AND revision = :expected

-- name: update_task
UPDATE dag_tasks SET {dag_task.assignments} WHERE run_id = :run_id AND task_id = :task_id

-- name: task
SELECT {dag_task.columns} FROM dag_tasks WHERE run_id = :run_id AND task_id = :task_id

-- name: write_attempt
INSERT INTO dag_attempts ({dag_attempt.columns}) VALUES ({dag_attempt.values})
ON CONFLICT (run_id, task_id, attempt) DO UPDATE
SET worker = excluded.worker, ended_at = excluded.ended_at, outcome = excluded.outcome,
    error = excluded.error, output = excluded.output

-- name: run
SELECT {dag_run.columns} FROM dag_runs WHERE run_id = :run_id

-- name: statuses
SELECT run_id, status FROM dag_runs WHERE run_id IN ({names})

-- name: failed_task
SELECT task_id, error FROM dag_tasks WHERE run_id = :run_id AND status = 'failed' ORDER BY position LIMIT 1

-- name: run_by_key
SELECT {dag_run.columns} FROM dag_runs WHERE run_key = :run_key

-- name: runs
SELECT {dag_run.columns} FROM dag_runs
WHERE (CAST(:dag_id AS TEXT) IS NULL OR dag_id = :dag_id)
    AND (CAST(:status AS TEXT) IS NULL OR status = :status)
    AND (created_at < :created_at OR (created_at = :created_at AND run_id < :run_id))
ORDER BY created_at DESC, run_id DESC LIMIT :limit

-- name: tasks
-- Without results, which are long and of which decisions need those of branches alone.
SELECT {dag_task.states} FROM dag_tasks WHERE run_id = :run_id ORDER BY position

-- name: attempts
SELECT {dag_attempt.tails} FROM dag_attempts
WHERE run_id = :run_id AND (CAST(:task_id AS TEXT) IS NULL OR task_id = :task_id)
ORDER BY started_at DESC, task_id, attempt LIMIT :limit

-- name: busy
SELECT run_id, dag_id, pool, COUNT(*) FROM dag_tasks WHERE status = 'running' GROUP BY run_id, dag_id, pool

-- name: queued
-- A task that waits for no retry is due, also if it was queued while the clock was ahead.
SELECT {dag_task.columns} FROM dag_tasks
WHERE status = 'queued' AND (due_at <= :now OR attempt = base) AND (due_at, run_id, position) > (:due_at, :run_id, :position)
    AND (CAST(:without AS TEXT) = '' OR NOT EXISTS (
        SELECT 1 FROM dag_runs WHERE dag_runs.run_id = dag_tasks.run_id
            AND REPLACE(CAST(:without AS TEXT), CAST(:before AS TEXT) || user_id || CAST(:after AS TEXT), '')
                <> CAST(:without AS TEXT)
    ))
    AND NOT EXISTS (SELECT 1 FROM dag_states WHERE dag_states.dag_id = dag_tasks.dag_id AND paused = 1)
ORDER BY due_at, run_id, position LIMIT :limit

-- name: late_retries
SELECT {dag_task.columns} FROM dag_tasks
WHERE status = 'queued' AND attempt > base AND due_at > :now ORDER BY due_at DESC, run_id, position LIMIT :limit

-- name: expired
-- No lease lasts longer than `latest`: a later one was granted while the clock was ahead, and is not renewed.
SELECT {dag_task.columns} FROM dag_tasks
WHERE status = 'running' AND (lease_until <= :now OR lease_until > :latest)
ORDER BY lease_until, run_id, position LIMIT :limit

-- name: next_due
SELECT MIN(at) FROM (
    SELECT MIN(due_at) AS at FROM dag_tasks
    WHERE status = 'queued' AND due_at > :now AND attempt > base
        AND NOT EXISTS (SELECT 1 FROM dag_states WHERE dag_states.dag_id = dag_tasks.dag_id AND paused = 1)
    UNION ALL SELECT MIN(lease_until) FROM dag_tasks WHERE status = 'running'
) AS times

-- name: renew
UPDATE dag_tasks SET lease_until = :lease_until
WHERE run_id = :run_id AND task_id = :task_id AND attempt = :attempt AND worker = :worker AND status = 'running'

-- name: results
SELECT task_id, result FROM dag_tasks WHERE run_id = :run_id AND task_id IN ({names}) AND result IS NOT NULL

-- name: is_cancelled
SELECT cancel FROM dag_runs WHERE run_id = :run_id

-- name: set_paused
INSERT INTO dag_states (dag_id, paused) VALUES (:dag_id, :paused)
ON CONFLICT (dag_id) DO UPDATE SET paused = excluded.paused

-- name: paused
SELECT dag_id FROM dag_states WHERE paused = 1

-- name: set_pool
INSERT INTO dag_pools (name, slots) VALUES (:name, :slots) ON CONFLICT (name) DO UPDATE SET slots = excluded.slots

-- name: pools
SELECT name, slots FROM dag_pools ORDER BY name

-- name: open_runs
SELECT COUNT(*) FROM dag_runs WHERE user_id = :user_id AND status IN ('queued', 'running')

-- name: summary
SELECT COALESCE((SELECT paused FROM dag_states WHERE dag_id = :dag_id), 0),
    COUNT(CASE WHEN status = 'queued' THEN 1 END), COUNT(CASE WHEN status = 'running' THEN 1 END),
    COUNT(CASE WHEN status = 'success' THEN 1 END), COUNT(CASE WHEN status = 'failed' THEN 1 END),
    COUNT(CASE WHEN status = 'cancelled' THEN 1 END), MAX(logical_date)
FROM dag_runs WHERE dag_id = :dag_id

-- name: summaries
SELECT names.dag_id, COALESCE(MAX(dag_states.paused), 0),
    COUNT(CASE WHEN status = 'queued' THEN 1 END), COUNT(CASE WHEN status = 'running' THEN 1 END),
    COUNT(CASE WHEN status = 'success' THEN 1 END), COUNT(CASE WHEN status = 'failed' THEN 1 END),
    COUNT(CASE WHEN status = 'cancelled' THEN 1 END), MAX(logical_date)
FROM (SELECT dag_id FROM dag_runs UNION SELECT dag_id FROM dag_states) AS names
LEFT JOIN dag_runs ON dag_runs.dag_id = names.dag_id
LEFT JOIN dag_states ON dag_states.dag_id = names.dag_id
GROUP BY names.dag_id ORDER BY names.dag_id LIMIT :limit
