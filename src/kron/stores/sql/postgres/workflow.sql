-- name: insert_workflow
INSERT INTO workflows (workflow_id, version, dag, user_id, created_at)
VALUES (%(workflow_id)s, %(version)s, %(dag)s, %(user_id)s, %(created_at)s)
ON CONFLICT (workflow_id, version) DO NOTHING

-- name: replace_draft
UPDATE workflows SET dag = %(dag)s, user_id = %(user_id)s, created_at = %(created_at)s
WHERE workflow_id = %(workflow_id)s AND version = %(version)s AND dag = %(draft)s

-- name: workflow
SELECT workflow_id, version, dag, user_id, created_at FROM workflows
WHERE workflow_id = %(workflow_id)s AND version = %(version)s

-- name: workflow_versions
SELECT version, user_id, created_at FROM workflows
WHERE workflow_id = %(workflow_id)s ORDER BY version DESC LIMIT %(limit)s

-- name: count_versions
SELECT count(*) FROM (
    SELECT version FROM workflows
    WHERE workflow_id >= %(prefix)s AND workflow_id < %(following)s LIMIT %(most)s) AS found

-- name: workflow_names
SELECT DISTINCT workflow_id FROM workflows
WHERE workflow_id > %(after)s AND (CAST(%(users)s AS TEXT[]) IS NULL OR user_id = ANY(CAST(%(users)s AS TEXT[])))
ORDER BY workflow_id LIMIT %(limit)s

-- name: forget_starts
DELETE FROM workflow_starts WHERE begun_at < %(old)s

-- name: begin_start
INSERT INTO workflow_starts (idempotency_key, attempt, workflow_id, version, begun_at)
VALUES (%(idempotency_key)s, %(attempt)s, %(workflow_id)s, %(version)s, %(begun_at)s)
ON CONFLICT (idempotency_key, attempt) DO NOTHING

-- name: known_start
SELECT workflow_id, version, accepted FROM workflow_starts
WHERE idempotency_key = %(idempotency_key)s AND attempt = %(attempt)s

-- name: accept_start
UPDATE workflow_starts SET accepted = TRUE
WHERE idempotency_key = %(idempotency_key)s AND attempt = %(attempt)s

-- name: drop_start
DELETE FROM workflow_starts
WHERE idempotency_key = %(idempotency_key)s AND attempt = %(attempt)s AND NOT accepted
