-- The entries of a schedule by their user: one who asks for a schedule of another has none of them read, so that their number
-- costs no time. Those of all users together are put in order when they are read.
DROP INDEX audit_schedule;
CREATE INDEX audit_schedule ON audit (namespace, schedule_id, user_id, at, number);
