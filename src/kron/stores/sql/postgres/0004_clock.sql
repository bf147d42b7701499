-- Wrong clocks: excursions of a worker's clock, the periods that a correction opened again, and, in a schedule's row,
-- the nominal times after its cursor that were handled while the clock was ahead.

ALTER TABLE schedules ADD COLUMN handled text;

CREATE TABLE clock_excursions (
    number          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace       text COLLATE "C" NOT NULL,
    event           text NOT NULL,
    found_at        bigint NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    reference       bigint NOT NULL,
    over_at         bigint,
    ending          text,
    reopened        bigint NOT NULL,
    UNIQUE (namespace, event, found_at, owner)
);

CREATE TABLE schedule_reopened (
    namespace       text COLLATE "C" NOT NULL,
    schedule_id     text COLLATE "C" NOT NULL,
    first           bigint NOT NULL,
    last            bigint NOT NULL,
    periods         bigint NOT NULL,
    outcome         text NOT NULL,
    reason          text NOT NULL,
    epoch           bigint NOT NULL,
    made_at         bigint NOT NULL,
    reopened_at     bigint NOT NULL,
    PRIMARY KEY (namespace, schedule_id, first, reopened_at),
    FOREIGN KEY (namespace, schedule_id) REFERENCES schedules (namespace, schedule_id) ON DELETE CASCADE
);
