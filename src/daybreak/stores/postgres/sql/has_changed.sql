-- Whether anything was told since the snapshot of the last look (see feed_page.sql); what queues are set to, and what
-- came in within other transactions; and the snapshot of this look.
SELECT EXISTS (SELECT 1 FROM daybreak.feed f
               WHERE f.xid >= pg_snapshot_xmax(s.seen) OR f.xid IN (SELECT x FROM pg_snapshot_xip(s.seen) x)),
       ARRAY[(SELECT coalesce(sum(r.revision), 0)::bigint FROM daybreak.record r WHERE r.kind = 'queue'),
             (SELECT coalesce(max(i.n), 0) FROM daybreak.incoming i), (SELECT count(*) FROM daybreak.incoming)],
       pg_current_snapshot()::text
FROM (SELECT coalesce(%s::text::pg_snapshot, pg_current_snapshot()) AS seen) s
