-- Versions of workflows, which never change, and which of them the run launcher was asked to start.

CREATE TABLE workflows (
    workflow_id TEXT NOT NULL,
    version     INTEGER NOT NULL,
    dag         TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (workflow_id, version)
) WITHOUT ROWID;

CREATE TABLE workflow_starts (
    idempotency_key TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    workflow_id     TEXT NOT NULL,
    version         INTEGER NOT NULL,
    begun_at        INTEGER NOT NULL,
    accepted        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (idempotency_key, attempt)
) WITHOUT ROWID;

CREATE INDEX workflow_starts_by_age ON workflow_starts (begun_at);
