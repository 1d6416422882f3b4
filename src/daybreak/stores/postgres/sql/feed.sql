-- The event feed.

-- name: feed_now
-- The latest transaction that is in the feed or was purged from it; the latest purged transaction and the last purged
-- position; the transactions that are still running; and the end (xmax) of this snapshot.
SELECT greatest(coalesce((SELECT f.xid::text::bigint FROM daybreak.feed f ORDER BY f.xid DESC LIMIT 1), 0), p.xid), p.xid, p.pos,
       (SELECT coalesce(array_agg(x::text::bigint), '{}') FROM pg_snapshot_xip(pg_current_snapshot()) x),
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM (SELECT coalesce(max(m.value::bigint) FILTER (WHERE m.name = 'purged_xid'), 0) AS xid,
             coalesce(max(m.value::bigint) FILTER (WHERE m.name = 'purged_pos'), 0) AS pos
      FROM daybreak.meta m WHERE m.name IN ('purged_xid', 'purged_pos')) p

-- name: feed_page
-- The rows that the cursor's snapshot did not include and this snapshot (or `until`, for a cursor inside a long page) does.
-- A snapshot does not include transactions that began after it (xid >= its xmax) or were running (under_way). The first
-- new row is found by xid (OFFSET 0 keeps the planner from scanning the whole feed), and from there the rows are read in
-- order.
SELECT f.pos, f.ids, f.runs, f.lines FROM daybreak.feed f
WHERE (f.xid >= %(xmax)b::text::xid8 OR f.xid = ANY (%(under_way)b::text[]::xid8[]))
  AND (%(until)b::text IS NULL OR pg_visible_in_snapshot(f.xid, %(until)b::text::pg_snapshot))
  AND f.pos >= CASE WHEN %(until)b::text IS NOT NULL THEN %(pos)b::bigint ELSE (
      SELECT min(x.pos) FROM (
          SELECT g.pos FROM daybreak.feed g
          WHERE g.xid >= %(xmax)b::text::xid8 OR g.xid = ANY (%(under_way)b::text[]::xid8[]) OFFSET 0) x) END
ORDER BY f.pos LIMIT %(limit)b::bigint

-- name: insert_feed
INSERT INTO daybreak.feed (at, ids, runs, lines) VALUES (%b::bigint, %b::text, %b::integer[], %b::text)

-- name: may_advance
-- Each value is read from the first entry of its index: the planner may answer an IN or an EXISTS with a full scan.
SELECT t.now, t.has_incoming OR coalesce(least(t.first, t.second, t.look) <= t.now, false)
           OR coalesce(t.expires <= t.now, false) OR t.landing IS NOT NULL,
       least(t.first, t.second, t.look)
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - a.offset_ AS now,
             EXISTS (SELECT 1 FROM daybreak.incoming) AS has_incoming,
             (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 0) AS first,
             (SELECT min(d.due) - a.offset_ FROM daybreak.delayed d WHERE d.clock = 1) AS second,
             (SELECT min(g.look) FROM daybreak.gauge g WHERE g.look IS NOT NULL) AS look,
             (SELECT min(j.expires) FROM daybreak.job j WHERE j.expires IS NOT NULL) AS expires,
             (SELECT min(f.number) FROM daybreak.flight f WHERE f.landing) AS landing
      FROM (SELECT %b::bigint AS offset_) a) t

-- name: may_purge
-- Each value is read from the first entry of its index. The feed is purged in order, so its first row decides.
SELECT t.now, coalesce(t.done <= t.now, false) OR coalesce(t.first_event <= t.now - %b::bigint, false)
           OR coalesce(t.dropped <= t.now, false) OR coalesce(t.lapsed <= t.now, false)
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %b::bigint AS now,
             (SELECT min(d.purge_at) FROM daybreak.done d WHERE d.purge_at IS NOT NULL) AS done,
             (SELECT f.at FROM daybreak.feed f ORDER BY f.pos LIMIT 1) AS first_event,
             (SELECT min(k.dropped) FROM daybreak.idem k WHERE k.dropped IS NOT NULL) AS dropped,
             (SELECT min(f.until) FROM daybreak.flight f WHERE f.flight IS NOT NULL AND f.until IS NOT NULL) AS lapsed) t

-- name: oldest_feed
SELECT f.pos, f.at, f.xid::text::bigint, (SELECT sum(r) FROM unnest(f.runs) r)::bigint FROM daybreak.feed f ORDER BY f.pos LIMIT %b::bigint

-- name: purge_feed
DELETE FROM daybreak.feed f WHERE f.pos = ANY (%b::bigint[])
