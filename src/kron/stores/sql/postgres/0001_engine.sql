-- The engine's tables. Times are integers inside: nominal times in seconds, all others in milliseconds.
-- What people and other programs read (SPEC 3: 3) is computed from them.
-- A zero sign in a JSON text is replaced before it is read: PostgreSQL cannot show it.
-- Names and keys are compared byte by byte, which is quick and the same on every machine.

CREATE TABLE schedules (
    namespace       text COLLATE "C" NOT NULL,
    schedule_id     text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL,
    definition      text NOT NULL,
    launcher        text NOT NULL,
    launcher_kind   text NOT NULL,
    epoch           bigint NOT NULL,
    edited_at       bigint NOT NULL,
    born_at         bigint NOT NULL,
    revision        bigint NOT NULL,
    cursor          bigint NOT NULL,
    next_time       bigint,
    plan_at         bigint,
    past            text,
    replay_until    bigint,
    replay_at       bigint,
    replay_count    bigint NOT NULL,
    paused          boolean NOT NULL,
    paused_because  text,
    resumed_at      bigint,
    deleted_at      bigint,
    remaining       bigint,
    failures        bigint NOT NULL,
    last_start_at   bigint,
    last_success_at bigint,
    last_failure_at bigint,
    changed_at      bigint NOT NULL,
    workflow_id     text GENERATED ALWAYS AS (replace(launcher, '\u0000', '\u0001')::json ->> 'workflow_id') STORED,
    version         integer GENERATED ALWAYS AS (
        CASE WHEN replace(launcher, '\u0000', '\u0001')::json ->> 'version' ~ '^[0-9]{1,9}$' THEN (replace(launcher, '\u0000', '\u0001')::json ->> 'version')::integer END
    ) STORED,
    user_id         text GENERATED ALWAYS AS (replace(launcher, '\u0000', '\u0001')::json ->> 'user_id') STORED,
    cron_expr       text GENERATED ALWAYS AS (replace(definition, '\u0000', '\u0001')::json ->> 'schedule') STORED,
    timezone        text GENERATED ALWAYS AS (coalesce(replace(definition, '\u0000', '\u0001')::json ->> 'timezone', 'UTC')) STORED,
    start_at        text GENERATED ALWAYS AS (replace(definition, '\u0000', '\u0001')::json #>> '{policy,start_at}') STORED,
    end_at          text GENERATED ALWAYS AS (replace(definition, '\u0000', '\u0001')::json #>> '{policy,end_at}') STORED,
    jitter_ms       integer GENERATED ALWAYS AS (
        coalesce((replace(definition, '\u0000', '\u0001')::json #>> '{policy,jitter_ms}')::integer, 0)
    ) STORED,
    overlap_policy  text GENERATED ALWAYS AS (
        coalesce(nullif(replace(definition, '\u0000', '\u0001')::json #>> '{policy,concurrency}', 'forbid'), 'skip')
    ) STORED,
    catchup_policy  text GENERATED ALWAYS AS (
        coalesce(nullif(replace(definition, '\u0000', '\u0001')::json #>> '{policy,catchup}', 'all'), 'fire_immediately')
    ) STORED,
    next_run_at     timestamptz GENERATED ALWAYS AS (to_timestamp(next_time)) STORED,
    updated_at      timestamptz GENERATED ALWAYS AS (to_timestamp(changed_at / 1000.0)) STORED,
    PRIMARY KEY (namespace, schedule_id)
) WITH (fillfactor = 80);

-- The shard stands in the index so that another worker's jobs are passed over without a look at their rows.
CREATE INDEX schedules_to_plan ON schedules (namespace, plan_at, shard) WHERE plan_at IS NOT NULL;

CREATE TABLE schedule_runs (
    namespace       text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    schedule_id     text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL,
    nominal_time    bigint NOT NULL,
    fire_time       bigint NOT NULL,
    status          text NOT NULL,
    reason          text NOT NULL,
    made_at         bigint NOT NULL,
    epoch           bigint NOT NULL,
    due_at          bigint,
    is_open         smallint NOT NULL,
    kind            text NOT NULL,
    attempt         bigint NOT NULL,
    token           bigint NOT NULL,
    began_at        bigint,
    over_at         bigint,
    result          text,
    error           text,
    run_id          text,
    acked           smallint NOT NULL,
    changed_at      bigint NOT NULL,
    run_at          timestamptz GENERATED ALWAYS AS (to_timestamp(nominal_time)) STORED,
    fire_at         timestamptz GENERATED ALWAYS AS (to_timestamp(fire_time / 1000.0)) STORED,
    created_at      timestamptz GENERATED ALWAYS AS (to_timestamp(made_at / 1000.0)) STORED,
    started_at      timestamptz GENERATED ALWAYS AS (to_timestamp(began_at / 1000.0)) STORED,
    ended_at        timestamptz GENERATED ALWAYS AS (to_timestamp(over_at / 1000.0)) STORED,
    updated_at      timestamptz GENERATED ALWAYS AS (to_timestamp(changed_at / 1000.0)) STORED,
    PRIMARY KEY (namespace, idempotency_key)
) WITH (fillfactor = 80);

CREATE INDEX schedule_runs_history ON schedule_runs (namespace, schedule_id, nominal_time);
CREATE INDEX schedule_runs_due ON schedule_runs (namespace, due_at, shard) WHERE due_at IS NOT NULL;
CREATE INDEX schedule_runs_open ON schedule_runs (namespace, schedule_id) WHERE is_open = 1;
-- For the latest runs of all schedules. Records are made in order, so it only grows at its end.
CREATE INDEX schedule_runs_made ON schedule_runs (namespace, made_at);
-- Old records lie together, so a few bytes per group of pages are enough to find them.
CREATE INDEX schedule_runs_age ON schedule_runs USING brin (changed_at) WITH (autosummarize = on);

CREATE TABLE schedule_attempts (
    namespace       text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    attempt         bigint NOT NULL,
    token           bigint NOT NULL,
    began_at        bigint,
    over_at         bigint,
    result          text,
    error           text,
    run_id          text,
    PRIMARY KEY (namespace, idempotency_key, attempt)
);

CREATE TABLE schedule_ranges (
    namespace       text COLLATE "C" NOT NULL,
    schedule_id     text COLLATE "C" NOT NULL,
    first           bigint NOT NULL,
    last            bigint NOT NULL,
    periods         bigint NOT NULL,
    outcome         text NOT NULL,
    reason          text NOT NULL,
    epoch           bigint NOT NULL,
    made_at         bigint NOT NULL,
    PRIMARY KEY (namespace, schedule_id, first)
);

CREATE INDEX schedule_ranges_age ON schedule_ranges (namespace, made_at);

CREATE TABLE schedule_epochs (
    namespace       text COLLATE "C" NOT NULL,
    schedule_id     text COLLATE "C" NOT NULL,
    epoch           bigint NOT NULL,
    made_at         bigint NOT NULL,
    definition      text NOT NULL,
    PRIMARY KEY (namespace, schedule_id, epoch)
);

-- Who looks after which shard. A shard without an owner is free; one whose lease ended is free a margin later.
CREATE TABLE leases (
    namespace       text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL,
    owner           text,
    token           bigint NOT NULL,
    expires_at      bigint,
    PRIMARY KEY (namespace, shard)
) WITH (fillfactor = 50);

-- Who wants a share, where the shards of a namespace are shared.
CREATE TABLE workers (
    namespace       text COLLATE "C" NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    expires_at      bigint NOT NULL,
    PRIMARY KEY (namespace, owner)
);

-- The latest instant a registration was written at: it outlives schedules that are forgotten.
CREATE TABLE marks (
    namespace       text COLLATE "C" PRIMARY KEY,
    high            bigint NOT NULL
);

-- One for all namespaces: whoever takes over later has the higher token.
CREATE SEQUENCE kron_token AS bigint CACHE 1;
