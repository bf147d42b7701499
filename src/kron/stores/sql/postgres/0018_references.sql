-- That what belongs to a schedule refers to one is checked once for a statement. A foreign key asks for every row, and at
-- every update of a schedule: of a burst of starts that was a fifth of the database's time.
ALTER TABLE schedule_runs DROP CONSTRAINT schedule_runs_schedule;
ALTER TABLE schedule_reopened DROP CONSTRAINT schedule_reopened_namespace_schedule_id_fkey;
ALTER TABLE incidents DROP CONSTRAINT incidents_namespace_schedule_id_fkey;
ALTER TABLE schedule_notices DROP CONSTRAINT schedule_notices_namespace_schedule_id_fkey;

-- The lock keeps the schedules until the transaction ends, as that of a foreign key does. Each is found by its key: a plan
-- made while the table was small would read all of it when it is large.
CREATE FUNCTION kron_runs_written() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
    found bigint;
BEGIN
    PERFORM 1 FROM written JOIN schedules USING (namespace, schedule_id) FOR KEY SHARE OF schedules;
    GET DIAGNOSTICS found = ROW_COUNT;
    IF found < (SELECT count(*) FROM written) THEN
        RAISE foreign_key_violation USING MESSAGE = 'a run refers to a schedule that is not there';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER schedule_runs_written AFTER INSERT ON schedule_runs
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION kron_runs_written();

CREATE FUNCTION kron_schedules_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM removed JOIN schedule_runs USING (namespace, schedule_id)) THEN
        RAISE foreign_key_violation USING MESSAGE = 'runs refer to a schedule that is to be removed';
    END IF;
    DELETE FROM schedule_reopened AS one USING removed
    WHERE one.namespace = removed.namespace AND one.schedule_id = removed.schedule_id;
    DELETE FROM incidents AS one USING removed
    WHERE one.namespace = removed.namespace AND one.schedule_id = removed.schedule_id;
    DELETE FROM schedule_notices AS one USING removed
    WHERE one.namespace = removed.namespace AND one.schedule_id = removed.schedule_id;
    RETURN NULL;
END $$;
CREATE TRIGGER schedules_removed AFTER DELETE ON schedules
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION kron_schedules_removed();

-- The key of a schedule never changes, nor whose a run is. (A trigger before an update would compute `version` anew at each.)
CREATE FUNCTION kron_key_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE foreign_key_violation USING MESSAGE = 'the key of a schedule and the schedule of a run never change';
END $$;
CREATE TRIGGER schedule_runs_kept AFTER UPDATE OF namespace, schedule_id ON schedule_runs FOR EACH ROW
    WHEN ((OLD.namespace, OLD.schedule_id) IS DISTINCT FROM (NEW.namespace, NEW.schedule_id))
    EXECUTE FUNCTION kron_key_kept();
CREATE TRIGGER schedules_kept AFTER UPDATE OF namespace, schedule_id ON schedules FOR EACH ROW
    WHEN ((OLD.namespace, OLD.schedule_id) IS DISTINCT FROM (NEW.namespace, NEW.schedule_id))
    EXECUTE FUNCTION kron_key_kept();
