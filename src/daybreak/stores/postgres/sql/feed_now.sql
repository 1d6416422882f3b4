-- The latest transaction that this snapshot shows in the feed or that was purged from it; the latest that was purged and
-- the last place that was; what is under way; and where this snapshot ends.
SELECT greatest(coalesce((SELECT f.xid::text::bigint FROM daybreak.feed f ORDER BY f.xid DESC LIMIT 1), 0), p.xid), p.xid, p.pos,
       (SELECT coalesce(array_agg(x::text::bigint), '{}') FROM pg_snapshot_xip(pg_current_snapshot()) x),
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM (SELECT coalesce(max(m.value::bigint) FILTER (WHERE m.name = 'purged_xid'), 0) AS xid,
             coalesce(max(m.value::bigint) FILTER (WHERE m.name = 'purged_pos'), 0) AS pos
      FROM daybreak.meta m WHERE m.name IN ('purged_xid', 'purged_pos')) p
