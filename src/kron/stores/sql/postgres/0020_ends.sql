-- What has no end is found by its schedule. In an index of ends it would stand together, and a planner that has no statistics
-- would read all of it for each schedule.
DROP INDEX incidents_by_end;
CREATE INDEX incidents_by_end ON incidents (namespace, until_at) WHERE until_at IS NOT NULL;
