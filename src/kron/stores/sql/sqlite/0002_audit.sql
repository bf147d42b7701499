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
