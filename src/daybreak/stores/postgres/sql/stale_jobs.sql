SELECT d.seq FROM daybreak.done d WHERE d.purge_at <= %b::bigint ORDER BY d.purge_at, d.seq LIMIT %b::bigint FOR UPDATE SKIP LOCKED
