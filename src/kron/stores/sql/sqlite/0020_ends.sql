-- What has no end is found by its job. In an index of ends it would stand together, and be read for each job.
DROP INDEX incidents_by_end;
CREATE INDEX incidents_by_end ON incidents (namespace, until_at) WHERE until_at IS NOT NULL;
