-- The namespaces that have, or have had, schedules without a user: they are a tenant of their own, which a burst asks for.
-- An index of these schedules was written at every start of one, a tenth of the update's time; this is written once.
CREATE TABLE namespaces_without_user (namespace text COLLATE "C" PRIMARY KEY);
INSERT INTO namespaces_without_user SELECT DISTINCT namespace FROM schedules WHERE user_id IS NULL;

CREATE FUNCTION kron_schedules_written() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO namespaces_without_user SELECT DISTINCT namespace FROM written WHERE user_id IS NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER schedules_written AFTER INSERT ON schedules
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION kron_schedules_written();

CREATE FUNCTION kron_user_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO namespaces_without_user VALUES (NEW.namespace) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER schedules_without_user AFTER UPDATE OF launcher ON schedules FOR EACH ROW
    WHEN (NEW.user_id IS NULL AND OLD.user_id IS NOT NULL) EXECUTE FUNCTION kron_user_removed();

DROP INDEX schedules_no_user;
