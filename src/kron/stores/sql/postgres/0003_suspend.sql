-- A definition suspends a schedule, a person pauses it, until an instant if one is given: two flags.
-- Until now both were `paused`. In a program only the definition sets it without a reason.

ALTER TABLE schedules ADD COLUMN suspended boolean NOT NULL DEFAULT false, ADD COLUMN paused_until bigint;
UPDATE schedules SET suspended = true, paused = false
WHERE paused AND paused_because IS NULL AND namespace LIKE 'runner:%';
