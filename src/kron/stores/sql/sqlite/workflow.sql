-- name: insert_workflow
INSERT INTO workflows (workflow_id, version, dag, user_id, created_at)
VALUES (:workflow_id, :version, :dag, :user_id, :created_at)
ON CONFLICT (workflow_id, version) DO NOTHING

-- name: replace_draft
UPDATE workflows SET dag = :dag, user_id = :user_id, created_at = :created_at
WHERE workflow_id = :workflow_id AND version = :version AND dag = :draft

-- name: workflow
SELECT workflow_id, version, dag, user_id, created_at FROM workflows
WHERE workflow_id = :workflow_id AND version = :version

-- name: workflow_versions
SELECT version, user_id, created_at FROM workflows
WHERE workflow_id = :workflow_id ORDER BY version DESC LIMIT :limit

-- name: count_versions
SELECT count(*) FROM (
    SELECT version FROM workflows
    WHERE workflow_id >= :prefix AND workflow_id < :following LIMIT :most) AS found

-- name: workflow_names
SELECT DISTINCT workflow_id FROM workflows
WHERE workflow_id > :after AND (:users IS NULL OR user_id IN (SELECT value FROM json_each(:users)))
ORDER BY workflow_id LIMIT :limit

-- name: forget_starts
DELETE FROM workflow_starts WHERE begun_at < :old

-- name: begin_start
INSERT INTO workflow_starts (idempotency_key, attempt, workflow_id, version, begun_at)
VALUES (:idempotency_key, :attempt, :workflow_id, :version, :begun_at)
ON CONFLICT (idempotency_key, attempt) DO NOTHING

-- name: known_start
SELECT workflow_id, version, accepted FROM workflow_starts
WHERE idempotency_key = :idempotency_key AND attempt = :attempt

-- name: accept_start
UPDATE workflow_starts SET accepted = TRUE
WHERE idempotency_key = :idempotency_key AND attempt = :attempt

-- name: drop_start
DELETE FROM workflow_starts
WHERE idempotency_key = :idempotency_key AND attempt = :attempt AND NOT accepted
