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

-- Who changed what. It outlives the schedules it speaks of.
CREATE TABLE audit (
    number          INTEGER PRIMARY KEY,
    namespace       INTEGER NOT NULL REFERENCES namespaces,
    at              INTEGER NOT NULL,
    who             TEXT NOT NULL,
    request_id      TEXT,
    action          TEXT NOT NULL,
    schedule_id     TEXT NOT NULL,
    user_id         TEXT,
    before          TEXT,
    after           TEXT
);

CREATE INDEX audit_schedule ON audit (namespace, schedule_id, number);
CREATE INDEX audit_user ON audit (namespace, user_id, number);

-- Whose a schedule is stands in its launcher; without this a tenant's page would look at everybody's.
CREATE INDEX jobs_user ON jobs (namespace, CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END, schedule_id)
    WHERE CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END IS NOT NULL;
