-- Periods after an edit that still follow an earlier definition, because one of them had started.
ALTER TABLE jobs ADD COLUMN kept_until INTEGER;
ALTER TABLE epochs ADD COLUMN kept_until INTEGER;
