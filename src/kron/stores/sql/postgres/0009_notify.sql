-- Notifications: who is notified of a schedule's events, and the events that are to be sent or were sent.
ALTER TABLE schedules ADD COLUMN notify text;

CREATE TABLE schedule_notices (
    number          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace       text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    schedule_id     text COLLATE "C" NOT NULL,
    event           text NOT NULL,
    target          text COLLATE "C" NOT NULL,
    nominal_time    bigint NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    made_at         bigint NOT NULL,
    periods         bigint NOT NULL,
    detail          text,
    state           text NOT NULL,
    due_at          bigint,
    tries           bigint NOT NULL,
    batch           text,
    over_at         bigint,
    sent_as         text,
    error           text,
    UNIQUE (namespace, id),
    FOREIGN KEY (namespace, schedule_id) REFERENCES schedules (namespace, schedule_id) ON DELETE CASCADE
);

CREATE INDEX schedule_notices_pending ON schedule_notices (namespace, target, number) WHERE state = 'pending';
CREATE INDEX schedule_notices_of_period ON schedule_notices (namespace, schedule_id, nominal_time);
CREATE INDEX schedule_notices_in_order ON schedule_notices (namespace, number) WHERE state <> 'pending';

-- A URL may be a secret: the view shows the names of channels only.
CREATE VIEW kron_notices AS
SELECT
    namespace, schedule_id, event, CASE WHEN strpos(target, '://') = 0 THEN target END AS channel,
    kron_second(nominal_time) AS run_at, idempotency_key, periods, state, tries, kron_time(made_at) AS created_at,
    kron_time(over_at) AS ended_at, sent_as, error
FROM schedule_notices;
