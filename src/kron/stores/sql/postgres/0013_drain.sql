-- Workers that a person asked to start nothing more: when, and when the worker was last heard from since.
CREATE TABLE drains (
    namespace text COLLATE "C" NOT NULL,
    owner     text COLLATE "C" NOT NULL,
    asked_at  bigint NOT NULL,
    seen_at   bigint,
    PRIMARY KEY (namespace, owner)
);
