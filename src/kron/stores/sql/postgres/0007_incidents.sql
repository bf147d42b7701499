-- Incidents: what explains periods beside their own records. One without a schedule concerns its namespace. A lease
-- keeps its last owner, so that a take-over can name it.

ALTER TABLE leases ADD COLUMN last_owner text COLLATE "C";
ALTER TABLE leases ADD COLUMN released_at bigint;

CREATE TABLE incidents (
    number          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace       text COLLATE "C" NOT NULL,
    kind            text NOT NULL,
    schedule_id     text COLLATE "C",
    from_at         bigint NOT NULL,
    until_at        bigint,
    actor           text,
    ended_by        text,
    subject         text,
    detail          text,
    FOREIGN KEY (namespace, schedule_id) REFERENCES schedules (namespace, schedule_id) ON DELETE CASCADE
);

CREATE INDEX incidents_of_schedule ON incidents (namespace, schedule_id, from_at);
CREATE INDEX incidents_by_end ON incidents (namespace, until_at);

CREATE VIEW kron_incidents AS
SELECT
    namespace, kind, schedule_id, kron_time(from_at) AS from_at, kron_time(until_at) AS until_at, actor, ended_by,
    subject, detail
FROM incidents;
