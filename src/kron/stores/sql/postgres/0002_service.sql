-- Versions of workflows, which never change, and which of them the run launcher was asked to start.

CREATE TABLE workflows (
    workflow_id text COLLATE "C" NOT NULL,
    version     integer NOT NULL,
    dag         text NOT NULL,
    user_id     text NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (workflow_id, version)
);

CREATE TABLE workflow_starts (
    idempotency_key text COLLATE "C" NOT NULL,
    attempt         bigint NOT NULL,
    workflow_id     text COLLATE "C" NOT NULL,
    version         integer NOT NULL,
    begun_at        bigint NOT NULL,
    accepted        boolean NOT NULL DEFAULT false,
    PRIMARY KEY (idempotency_key, attempt)
);

CREATE INDEX workflow_starts_by_age ON workflow_starts (begun_at);

-- Who changed what. It outlives the schedules it speaks of.
CREATE TABLE schedule_audit (
    number          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace       text COLLATE "C" NOT NULL,
    at              bigint NOT NULL,
    who             text NOT NULL,
    request_id      text,
    action          text NOT NULL,
    schedule_id     text COLLATE "C" NOT NULL,
    user_id         text,
    before          text,
    after           text
);

CREATE INDEX schedule_audit_schedule ON schedule_audit (namespace, schedule_id, number);
CREATE INDEX schedule_audit_user ON schedule_audit (namespace, user_id, number);
CREATE INDEX schedules_user ON schedules (namespace, user_id, schedule_id) WHERE user_id IS NOT NULL;
