SELECT t.schemaname || '.' || t.relname, t.n_dead_tup, t.n_live_tup,
       (extract(epoch FROM greatest(t.last_autovacuum, t.last_vacuum)) * 1000000)::bigint
FROM pg_stat_user_tables t
WHERE t.schemaname = %b::text AND t.n_dead_tup > %b::bigint AND t.n_dead_tup > t.n_live_tup
