-- Audit records are listed by their time, so that a cursor need not show how many there are of others.
DROP INDEX audit_schedule;
DROP INDEX audit_user;
CREATE INDEX audit_time ON audit (namespace, at, number);
CREATE INDEX audit_schedule ON audit (namespace, schedule_id, at, number);
CREATE INDEX audit_user ON audit (namespace, user_id, at, number);
