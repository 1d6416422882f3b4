-- Transactions that hold back the horizon behind which dead rows can be swept.
SELECT a.pid, a.application_name, coalesce(a.state, a.backend_type), (extract(epoch FROM a.xact_start) * 1000000)::bigint,
       extract(epoch FROM clock_timestamp() - a.xact_start)::double precision
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND a.backend_type IN ('client backend', 'walsender')
  AND (a.datname = current_database() OR a.datname IS NULL)
  AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL OR a.state LIKE 'idle in transaction%%')
  AND clock_timestamp() - a.xact_start > make_interval(secs => %b::double precision)
ORDER BY a.xact_start LIMIT 5
