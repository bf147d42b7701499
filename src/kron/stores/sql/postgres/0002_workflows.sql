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
