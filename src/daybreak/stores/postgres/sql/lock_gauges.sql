-- Be alone with all resources until the end. Before any other lock of a transaction, so nobody who waits for it holds
-- anything. What is asked in later statements is right; and so is the time, for one may have waited.
WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(4473428, hashtext('daybreak.gauge')))
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM alone
