-- The part of a definition that changes no decision, and the set of definitions it was applied with.
ALTER TABLE schedules ADD COLUMN profile text, ADD COLUMN applied_set text;
