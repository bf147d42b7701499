-- Incidents: what explains periods beside their own records. One without a schedule concerns its namespace. A lease
-- keeps its last owner, so that a take-over can name it.

ALTER TABLE leases ADD COLUMN last_owner TEXT;
ALTER TABLE leases ADD COLUMN released_at INTEGER;

CREATE TABLE incidents (
    number          INTEGER PRIMARY KEY,
    namespace       INTEGER NOT NULL REFERENCES namespaces,
    kind            TEXT NOT NULL,
    schedule_id     TEXT,
    from_at         INTEGER NOT NULL,
    until_at        INTEGER,
    actor           TEXT,
    ended_by        TEXT,
    subject         TEXT,
    detail          TEXT
);

CREATE INDEX incidents_of_schedule ON incidents (namespace, schedule_id, from_at);
CREATE INDEX incidents_by_end ON incidents (namespace, until_at);

CREATE TRIGGER incidents_of_removed_jobs AFTER DELETE ON jobs BEGIN
    DELETE FROM incidents WHERE namespace = old.namespace AND schedule_id = old.schedule_id;
END;

CREATE VIEW kron_incidents AS
SELECT
    namespaces.name AS namespace,
    kind,
    schedule_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', from_at / 1000.0, 'unixepoch') AS from_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', until_at / 1000.0, 'unixepoch') AS until_at,
    actor,
    ended_by,
    subject,
    detail
FROM incidents JOIN namespaces ON namespaces.number = incidents.namespace;
