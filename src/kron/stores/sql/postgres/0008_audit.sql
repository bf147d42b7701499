-- Audit records are listed by their time, so that a cursor need not show how many there are of others.
DROP INDEX schedule_audit_schedule;
DROP INDEX schedule_audit_user;
CREATE INDEX schedule_audit_time ON schedule_audit (namespace, at, number);
CREATE INDEX schedule_audit_schedule ON schedule_audit (namespace, schedule_id, at, number);
CREATE INDEX schedule_audit_user ON schedule_audit (namespace, user_id, at, number);
