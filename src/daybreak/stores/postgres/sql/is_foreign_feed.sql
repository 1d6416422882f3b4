-- What a snapshot shows is older than where it ends, unless another server has written it.
SELECT coalesce((SELECT f.xid FROM daybreak.feed f ORDER BY f.xid DESC LIMIT 1) >= pg_snapshot_xmax(pg_current_snapshot()), false)
    OR EXISTS (SELECT 1 FROM daybreak.meta m
               WHERE m.name = 'purged_xid' AND m.value::xid8 >= pg_snapshot_xmax(pg_current_snapshot()))
