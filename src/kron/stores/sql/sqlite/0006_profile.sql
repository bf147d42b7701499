-- The part of a definition that changes no decision, and the set of definitions it was applied with.
ALTER TABLE jobs ADD COLUMN profile TEXT;
ALTER TABLE jobs ADD COLUMN applied_set TEXT;
