-- Runs of DAGs: their snapshots, tasks and attempts, which DAGs are paused, and pools of slots.
CREATE TABLE dag_snapshots (
    digest     TEXT PRIMARY KEY,
    definition TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE dag_runs (
    run_id           TEXT PRIMARY KEY,
    run_key          TEXT NOT NULL UNIQUE,
    dag_id           TEXT NOT NULL,
    version          INTEGER NOT NULL,
    trigger          TEXT NOT NULL,
    logical_date     INTEGER NOT NULL,
    rerun_key        TEXT,
    user_id          TEXT NOT NULL,
    digest           TEXT NOT NULL REFERENCES dag_snapshots,
    input            TEXT NOT NULL,
    status           TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    parallelism      INTEGER NOT NULL,
    max_active_tasks INTEGER NOT NULL,
    cancel           INTEGER NOT NULL,
    revision         INTEGER NOT NULL,
    started_at       INTEGER,
    ended_at         INTEGER
);

CREATE INDEX dag_runs_in_order ON dag_runs (created_at, run_id);
CREATE INDEX dag_runs_of_dag ON dag_runs (dag_id, created_at, run_id);

CREATE TABLE dag_tasks (
    run_id      TEXT NOT NULL REFERENCES dag_runs ON DELETE CASCADE,
    task_id     TEXT NOT NULL,
    position    INTEGER NOT NULL,
    dag_id      TEXT NOT NULL,
    pool        TEXT,
    status      TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    base        INTEGER NOT NULL,
    due_at      INTEGER,
    worker      TEXT,
    lease_until INTEGER,
    started_at  INTEGER,
    ended_at    INTEGER,
    result      TEXT,
    error       TEXT,
    PRIMARY KEY (run_id, task_id)
) WITHOUT ROWID;

CREATE INDEX dag_tasks_queued ON dag_tasks (due_at, run_id, position) WHERE status = 'queued';
CREATE INDEX dag_tasks_running ON dag_tasks (lease_until, run_id, position) WHERE status = 'running';

CREATE TABLE dag_attempts (
    run_id     TEXT NOT NULL REFERENCES dag_runs ON DELETE CASCADE,
    task_id    TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    worker     TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    outcome    TEXT,
    error      TEXT,
    output     TEXT,
    PRIMARY KEY (run_id, task_id, attempt)
) WITHOUT ROWID;

CREATE TABLE dag_states (
    dag_id TEXT PRIMARY KEY,
    paused INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE dag_pools (
    name  TEXT PRIMARY KEY,
    slots INTEGER NOT NULL
) WITHOUT ROWID;
