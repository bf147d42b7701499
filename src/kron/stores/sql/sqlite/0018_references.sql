-- Only PostgreSQL checks references in another way; the steps of both databases have the same numbers.
SELECT 1;
