-- Only SQLite needs other indexes of what did not succeed; the steps of both databases have the same numbers.
SELECT 1;
