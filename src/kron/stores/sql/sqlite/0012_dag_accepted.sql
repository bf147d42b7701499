-- Whether a system outside the worker has taken over the latest attempt of a task.
ALTER TABLE dag_tasks ADD COLUMN accepted INTEGER NOT NULL DEFAULT 0;
