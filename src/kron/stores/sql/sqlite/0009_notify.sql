-- Notifications: who is notified of a schedule's events, and the events that are to be sent or were sent.
ALTER TABLE jobs ADD COLUMN notify TEXT;

CREATE TABLE notices (
    number          INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace       INTEGER NOT NULL REFERENCES namespaces,
    job             INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    id              TEXT NOT NULL,
    schedule_id     TEXT NOT NULL,
    event           TEXT NOT NULL,
    target          TEXT NOT NULL,
    nominal_time    INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL,
    made_at         INTEGER NOT NULL,
    periods         INTEGER NOT NULL,
    detail          TEXT,
    state           TEXT NOT NULL,
    due_at          INTEGER,
    tries           INTEGER NOT NULL,
    batch           TEXT,
    over_at         INTEGER,
    sent_as         TEXT,
    error           TEXT,
    UNIQUE (job, id)
);

CREATE INDEX notices_pending ON notices (namespace, target, number) WHERE state = 'pending';
CREATE INDEX notices_of_period ON notices (job, nominal_time);
CREATE INDEX notices_in_order ON notices (namespace, number) WHERE state <> 'pending';

-- A URL may be a secret: the view shows the names of channels only.
CREATE VIEW kron_notices AS
SELECT
    namespaces.name AS namespace,
    schedule_id,
    event,
    CASE WHEN instr(target, '://') THEN NULL ELSE target END AS channel,
    strftime('%Y-%m-%dT%H:%M:%SZ', nominal_time, 'unixepoch') AS run_at,
    idempotency_key,
    periods,
    state,
    tries,
    strftime('%Y-%m-%dT%H:%M:%fZ', made_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', over_at / 1000.0, 'unixepoch') AS ended_at,
    sent_as,
    error
FROM notices JOIN namespaces ON namespaces.number = notices.namespace;
