-- Periods after an edit that still follow an earlier definition, because one of them had started.
ALTER TABLE schedules ADD COLUMN kept_until bigint;
ALTER TABLE schedule_epochs ADD COLUMN kept_until bigint;
