-- Runs of DAGs: their snapshots, tasks and attempts, which DAGs are paused, and pools of slots.
CREATE TABLE dag_snapshots (
    digest     text COLLATE "C" PRIMARY KEY,
    definition text NOT NULL
);

CREATE TABLE dag_runs (
    run_id           text COLLATE "C" PRIMARY KEY,
    run_key          text COLLATE "C" NOT NULL UNIQUE,
    dag_id           text COLLATE "C" NOT NULL,
    version          bigint NOT NULL,
    trigger          text NOT NULL,
    logical_date     bigint NOT NULL,
    rerun_key        text,
    user_id          text COLLATE "C" NOT NULL,
    digest           text COLLATE "C" NOT NULL REFERENCES dag_snapshots,
    input            text NOT NULL,
    status           text NOT NULL,
    created_at       bigint NOT NULL,
    parallelism      bigint NOT NULL,
    max_active_tasks bigint NOT NULL,
    cancel           bigint NOT NULL,
    revision         bigint NOT NULL,
    started_at       bigint,
    ended_at         bigint
);

CREATE INDEX dag_runs_in_order ON dag_runs (created_at, run_id);
CREATE INDEX dag_runs_of_dag ON dag_runs (dag_id, created_at, run_id);

CREATE TABLE dag_tasks (
    run_id      text COLLATE "C" NOT NULL REFERENCES dag_runs ON DELETE CASCADE,
    task_id     text COLLATE "C" NOT NULL,
    position    bigint NOT NULL,
    dag_id      text COLLATE "C" NOT NULL,
    pool        text COLLATE "C",
    status      text NOT NULL,
    attempt     bigint NOT NULL,
    base        bigint NOT NULL,
    due_at      bigint,
    worker      text,
    lease_until bigint,
    started_at  bigint,
    ended_at    bigint,
    result      text,
    error       text,
    PRIMARY KEY (run_id, task_id)
);

CREATE INDEX dag_tasks_queued ON dag_tasks (due_at, run_id, position) WHERE status = 'queued';
CREATE INDEX dag_tasks_running ON dag_tasks (lease_until, run_id, position) WHERE status = 'running';

CREATE TABLE dag_attempts (
    run_id     text COLLATE "C" NOT NULL REFERENCES dag_runs ON DELETE CASCADE,
    task_id    text COLLATE "C" NOT NULL,
    attempt    bigint NOT NULL,
    worker     text NOT NULL,
    started_at bigint NOT NULL,
    ended_at   bigint,
    outcome    text,
    error      text,
    output     text,
    PRIMARY KEY (run_id, task_id, attempt)
);

CREATE TABLE dag_states (
    dag_id text COLLATE "C" PRIMARY KEY,
    paused bigint NOT NULL
);

CREATE TABLE dag_pools (
    name  text COLLATE "C" PRIMARY KEY,
    slots bigint NOT NULL
);
