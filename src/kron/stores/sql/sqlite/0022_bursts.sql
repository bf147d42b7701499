-- For whether a burst has jobs of several tenants: those without a user are one of them.
CREATE INDEX jobs_no_user ON jobs (namespace) WHERE CASE WHEN json_valid(launcher) THEN json_extract(launcher, '$.user_id') END IS NULL;
