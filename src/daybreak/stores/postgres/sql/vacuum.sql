-- Keeping moving tables free of dead rows.

-- name: sweep_delayed
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) daybreak.delayed

-- name: sweep_ready
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) daybreak.ready

-- name: to_sweep
-- Not all at once, though many programs ask, and by their owner alone. Where many jobs stand in line, whose index is swept
-- as a whole, more must be dead.
SELECT t.relname FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
WHERE t.schemaname = %b::text AND t.relname IN ('ready', 'delayed') AND pg_has_role(c.relowner, 'USAGE')
  AND t.n_dead_tup BETWEEN %b::bigint AND %b::bigint AND t.n_dead_tup * 15 > t.n_live_tup
  AND coalesce(greatest(t.last_vacuum, t.last_autovacuum) < clock_timestamp() - interval '2 s', true)
  AND NOT EXISTS (SELECT 1 FROM pg_stat_progress_vacuum p WHERE p.relid = t.relid)
