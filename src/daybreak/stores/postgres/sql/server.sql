-- The server's own state, for `doctor` and for opening a store.

-- name: clamp_leases
-- After the server's clock was set back: no lease lasts longer than its own length from now.
UPDATE daybreak.lease l SET until = %b::bigint + l.term WHERE l.until > %b::bigint + l.term

-- name: examine_aside
SELECT count(*), min(a.why) FROM daybreak.aside a

-- name: examine_clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: examine_connections
SELECT (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend'),
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer

-- name: examine_dead
SELECT t.schemaname || '.' || t.relname, t.n_dead_tup, t.n_live_tup,
       (extract(epoch FROM greatest(t.last_autovacuum, t.last_vacuum)) * 1000000)::bigint
FROM pg_stat_user_tables t
WHERE t.schemaname = %b::text AND t.n_dead_tup > %b::bigint AND t.n_dead_tup > t.n_live_tup

-- name: examine_settings
SELECT s.name, s.setting FROM pg_settings s
WHERE s.name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'server_encoding', 'default_transaction_isolation')

-- name: examine_snapshots
-- Transactions whose snapshots keep dead rows from being vacuumed.
SELECT a.pid, a.application_name, coalesce(a.state, a.backend_type), (extract(epoch FROM a.xact_start) * 1000000)::bigint,
       extract(epoch FROM clock_timestamp() - a.xact_start)::double precision
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND a.backend_type IN ('client backend', 'walsender')
  AND (a.datname = current_database() OR a.datname IS NULL)
  AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL OR a.state LIKE 'idle in transaction%%')
  AND clock_timestamp() - a.xact_start > make_interval(secs => %b::double precision)
ORDER BY a.xact_start LIMIT 5

-- name: has_changed
-- Whether the feed has new rows since the snapshot of the last poll (see feed_page); a fingerprint of the queue settings
-- and of the outbox; and the snapshot of this poll.
SELECT EXISTS (SELECT 1 FROM daybreak.feed f
               WHERE f.xid >= pg_snapshot_xmax(s.seen) OR f.xid IN (SELECT x FROM pg_snapshot_xip(s.seen) x)),
       ARRAY[(SELECT coalesce(sum(r.revision), 0)::bigint FROM daybreak.record r WHERE r.kind = 'queue'),
             (SELECT coalesce(max(i.n), 0) FROM daybreak.incoming i), (SELECT count(*) FROM daybreak.incoming)],
       pg_current_snapshot()::text
FROM (SELECT coalesce(%s::text::pg_snapshot, pg_current_snapshot()) AS seen) s

-- name: has_meta
-- Whether the schema exists and has been used by this program, or by another one.
SELECT to_regclass('daybreak.meta') IS NOT NULL

-- name: has_schema
SELECT EXISTS (SELECT 1 FROM pg_namespace n WHERE n.nspname = %b::text), to_regclass('daybreak.meta') IS NOT NULL

-- name: is_foreign_feed
-- A snapshot includes only transactions below its xmax, unless another server has written them.
SELECT coalesce((SELECT f.xid FROM daybreak.feed f ORDER BY f.xid DESC LIMIT 1) >= pg_snapshot_xmax(pg_current_snapshot()), false)
    OR EXISTS (SELECT 1 FROM daybreak.meta m
               WHERE m.name = 'purged_xid' AND m.value::xid8 >= pg_snapshot_xmax(pg_current_snapshot()))

-- name: own_feed
UPDATE daybreak.feed f SET xid = pg_current_xact_id() WHERE f.xid >= pg_snapshot_xmax(pg_current_snapshot())

-- name: own_purged
UPDATE daybreak.meta m SET value = pg_current_xact_id()::text
WHERE m.name = 'purged_xid' AND m.value::xid8 >= pg_snapshot_xmax(pg_current_snapshot())

-- name: raise_meta
-- A number that only grows, even if two transactions set it at the same time.
INSERT INTO daybreak.meta (name, value) VALUES (%b::text, %b::text)
ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value::bigint, excluded.value::bigint)::text

-- name: seen
-- The version of the schema, and the oldest program version that can use it.
SELECT (SELECT m.value::integer FROM daybreak.meta m WHERE m.name = 'version'),
       (SELECT m.value::integer FROM daybreak.meta m WHERE m.name = 'needs')
