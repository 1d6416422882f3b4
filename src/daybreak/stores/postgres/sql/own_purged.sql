UPDATE daybreak.meta m SET value = pg_current_xact_id()::text
WHERE m.name = 'purged_xid' AND m.value::xid8 >= pg_snapshot_xmax(pg_current_snapshot())
