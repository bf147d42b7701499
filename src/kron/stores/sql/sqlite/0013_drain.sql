-- Workers that a person asked to start nothing more: when, and when the worker was last heard from since.
CREATE TABLE drains (
    namespace INTEGER NOT NULL REFERENCES namespaces,
    owner     TEXT NOT NULL,
    asked_at  INTEGER NOT NULL,
    seen_at   INTEGER,
    PRIMARY KEY (namespace, owner)
) WITHOUT ROWID;
