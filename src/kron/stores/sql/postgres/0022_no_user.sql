-- For whether a burst has jobs of several tenants: those without a user are one of them.
CREATE INDEX schedules_no_user ON schedules (namespace) WHERE user_id IS NULL;
