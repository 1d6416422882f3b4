UPDATE daybreak.feed f SET xid = pg_current_xact_id() WHERE f.xid >= pg_snapshot_xmax(pg_current_snapshot())
