-- Wrong clocks: excursions of the host's clock, the periods that a correction opened again, and, in a job's record,
-- the nominal times after its cursor that were handled while the clock was ahead.

ALTER TABLE jobs ADD COLUMN handled TEXT;

CREATE TABLE clock_excursions (
    number          INTEGER PRIMARY KEY,
    namespace       INTEGER NOT NULL REFERENCES namespaces,
    event           TEXT NOT NULL,
    found_at        INTEGER NOT NULL,
    owner           TEXT NOT NULL,
    reference       INTEGER NOT NULL,
    over_at         INTEGER,
    ending          TEXT,
    reopened        INTEGER NOT NULL,
    UNIQUE (namespace, event, found_at, owner)
);

CREATE TABLE reopened (
    job             INTEGER NOT NULL REFERENCES jobs,
    schedule_id     TEXT NOT NULL,
    first           INTEGER NOT NULL,
    last            INTEGER NOT NULL,
    periods         INTEGER NOT NULL,
    outcome         TEXT NOT NULL,
    reason          TEXT NOT NULL,
    epoch           INTEGER NOT NULL,
    made_at         INTEGER NOT NULL,
    reopened_at     INTEGER NOT NULL,
    PRIMARY KEY (job, first, reopened_at)
) WITHOUT ROWID;

CREATE TRIGGER reopened_of_removed_jobs AFTER DELETE ON jobs BEGIN
    DELETE FROM reopened WHERE job = old.number;
END;
