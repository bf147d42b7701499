-- Only PostgreSQL writes into every index at each start; the steps of both databases have the same numbers.
SELECT 1;
