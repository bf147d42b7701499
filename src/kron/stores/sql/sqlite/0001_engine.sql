-- The engine's tables, and the two that SPEC 3 names as views of them.
-- Inside, times are integers (nominal times in seconds, all others in milliseconds) and jobs and namespaces have
-- numbers, because a busy minute looks each job up four times. The views show what people and other programs read.

CREATE TABLE namespaces (
    number          INTEGER PRIMARY KEY,
    name            TEXT NOT NULL UNIQUE
);

CREATE TABLE leases (
    namespace       INTEGER NOT NULL REFERENCES namespaces,
    shard           INTEGER NOT NULL,
    owner           TEXT,
    token           INTEGER NOT NULL,
    PRIMARY KEY (namespace, shard)
) WITHOUT ROWID;

CREATE TABLE jobs (
    number          INTEGER PRIMARY KEY,
    namespace       INTEGER NOT NULL REFERENCES namespaces,
    schedule_id     TEXT NOT NULL,
    definition      TEXT NOT NULL,
    launcher        TEXT NOT NULL,
    launcher_kind   TEXT NOT NULL,
    epoch           INTEGER NOT NULL,
    edited_at       INTEGER NOT NULL,
    born_at         INTEGER NOT NULL,
    revision        INTEGER NOT NULL,
    cursor          INTEGER NOT NULL,
    next_time       INTEGER,
    plan_at         INTEGER,
    past            TEXT,
    replay_until    INTEGER,
    replay_at       INTEGER,
    replay_count    INTEGER NOT NULL,
    paused          INTEGER NOT NULL,
    paused_because  TEXT,
    resumed_at      INTEGER,
    deleted_at      INTEGER,
    remaining       INTEGER,
    failures        INTEGER NOT NULL,
    last_start_at   INTEGER,
    last_success_at INTEGER,
    last_failure_at INTEGER,
    changed_at      INTEGER NOT NULL,
    UNIQUE (namespace, schedule_id)
);

CREATE INDEX jobs_to_plan ON jobs (namespace, plan_at) WHERE plan_at IS NOT NULL;

-- `slot` tells runs of one nominal time apart: 0 is the period's own, any other was asked for.
CREATE TABLE runs (
    idempotency_key TEXT NOT NULL,
    schedule_id     TEXT NOT NULL,
    nominal_time    INTEGER NOT NULL,
    fire_time       INTEGER NOT NULL,
    status          TEXT NOT NULL,
    reason          TEXT NOT NULL,
    made_at         INTEGER NOT NULL,
    epoch           INTEGER NOT NULL,
    due_at          INTEGER,
    is_open         INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    token           INTEGER NOT NULL,
    began_at        INTEGER,
    over_at         INTEGER,
    result          TEXT,
    error           TEXT,
    run_id          TEXT,
    acked           INTEGER NOT NULL,
    namespace       INTEGER NOT NULL REFERENCES namespaces,
    job             INTEGER NOT NULL REFERENCES jobs,
    slot            INTEGER NOT NULL,
    key_number      INTEGER,
    changed_at      INTEGER NOT NULL,
    UNIQUE (job, nominal_time, slot)
);

-- Keys are hashes, so an index of them is written all over. A request is known by its key alone; of all other runs
-- only those that start elsewhere, where somebody may speak of them, are found by a number made of their keys.
CREATE UNIQUE INDEX runs_asked ON runs (idempotency_key, namespace) WHERE slot <> 0;
CREATE INDEX runs_key ON runs (key_number) WHERE key_number IS NOT NULL;
CREATE INDEX runs_due ON runs (namespace, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_open ON runs (job) WHERE is_open = 1;
-- For the latest runs of all jobs. Records are made in order, so it only grows at its end.
CREATE INDEX runs_made ON runs (namespace, made_at);

CREATE TABLE attempts (
    job             INTEGER NOT NULL REFERENCES jobs,
    idempotency_key TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    token           INTEGER NOT NULL,
    began_at        INTEGER,
    over_at         INTEGER,
    result          TEXT,
    error           TEXT,
    run_id          TEXT,
    PRIMARY KEY (job, idempotency_key, attempt)
) WITHOUT ROWID;

CREATE INDEX attempts_key ON attempts (idempotency_key);

CREATE TABLE ranges (
    job             INTEGER NOT NULL REFERENCES jobs,
    schedule_id     TEXT NOT NULL,
    first           INTEGER NOT NULL,
    last            INTEGER NOT NULL,
    periods         INTEGER NOT NULL,
    outcome         TEXT NOT NULL,
    reason          TEXT NOT NULL,
    epoch           INTEGER NOT NULL,
    made_at         INTEGER NOT NULL,
    PRIMARY KEY (job, first)
) WITHOUT ROWID;

CREATE TABLE epochs (
    job             INTEGER NOT NULL REFERENCES jobs,
    schedule_id     TEXT NOT NULL,
    epoch           INTEGER NOT NULL,
    made_at         INTEGER NOT NULL,
    definition      TEXT NOT NULL,
    PRIMARY KEY (job, epoch)
) WITHOUT ROWID;

-- The latest instant a registration was written at: it outlives jobs that are forgotten.
CREATE TABLE marks (
    namespace       INTEGER PRIMARY KEY REFERENCES namespaces,
    high            INTEGER NOT NULL
);

CREATE VIEW schedules AS
SELECT
    namespaces.name AS namespace,
    schedule_id,
    json_extract(launcher, '$.workflow_id') AS workflow_id,
    json_extract(launcher, '$.version') AS version,
    json_extract(launcher, '$.user_id') AS user_id,
    json_extract(definition, '$.schedule') AS cron_expr,
    coalesce(json_extract(definition, '$.timezone'), 'UTC') AS timezone,
    json_extract(definition, '$.policy.start_at') AS start_at,
    json_extract(definition, '$.policy.end_at') AS end_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', next_time, 'unixepoch') AS next_run_at,
    paused,
    coalesce(json_extract(definition, '$.policy.jitter_ms'), 0) AS jitter_ms,
    coalesce(nullif(json_extract(definition, '$.policy.concurrency'), 'forbid'), 'skip') AS overlap_policy,
    coalesce(nullif(json_extract(definition, '$.policy.catchup'), 'all'), 'fire_immediately') AS catchup_policy,
    strftime('%Y-%m-%dT%H:%M:%fZ', changed_at / 1000.0, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', deleted_at / 1000.0, 'unixepoch') AS deleted_at,
    definition,
    launcher,
    epoch
FROM jobs JOIN namespaces ON namespaces.number = jobs.namespace;

CREATE VIEW schedule_runs AS
SELECT
    namespaces.name AS namespace,
    idempotency_key,
    schedule_id,
    strftime('%Y-%m-%dT%H:%M:%SZ', nominal_time, 'unixepoch') AS run_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', fire_time / 1000.0, 'unixepoch') AS fire_at,
    status,
    reason,
    run_id,
    kind,
    attempt,
    strftime('%Y-%m-%dT%H:%M:%fZ', began_at / 1000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', over_at / 1000.0, 'unixepoch') AS ended_at,
    result,
    error,
    strftime('%Y-%m-%dT%H:%M:%fZ', made_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', changed_at / 1000.0, 'unixepoch') AS updated_at
FROM runs JOIN namespaces ON namespaces.number = runs.namespace;
