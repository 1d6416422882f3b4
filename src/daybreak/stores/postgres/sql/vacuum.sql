-- Vacuuming the tables that change most.

-- name: vacuum_delayed
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) daybreak.delayed

-- name: vacuum_ready
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) daybreak.ready

-- name: tables_to_vacuum
-- Only tables that this role owns, and none that was vacuumed a moment ago or is being vacuumed: many processes ask at
-- the same time. A vacuum reads the whole index, so a table with many live rows needs more dead rows to be worth it.
SELECT t.relname FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
WHERE t.schemaname = %b::text AND t.relname IN ('ready', 'delayed') AND pg_has_role(c.relowner, 'USAGE')
  AND t.n_dead_tup BETWEEN %b::bigint AND %b::bigint AND t.n_dead_tup * 15 > t.n_live_tup
  AND coalesce(greatest(t.last_vacuum, t.last_autovacuum) < clock_timestamp() - interval '2 s', true)
  AND NOT EXISTS (SELECT 1 FROM pg_stat_progress_vacuum p WHERE p.relid = t.relid)
