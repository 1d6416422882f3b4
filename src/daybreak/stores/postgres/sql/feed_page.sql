-- What the snapshot of the cursor did not show and this one (or `until`, when a page ended inside it) does. Not shown by a
-- snapshot is what began after it (xid >= its xmax) or was under way. Where the new ones begin is found by their xids
-- (OFFSET 0 keeps the planner from walking the whole feed for it), and from there on they are read in order.
SELECT f.pos, f.ids, f.runs, f.lines FROM daybreak.feed f
WHERE (f.xid >= %(xmax)b::text::xid8 OR f.xid = ANY (%(under_way)b::text[]::xid8[]))
  AND (%(until)b::text IS NULL OR pg_visible_in_snapshot(f.xid, %(until)b::text::pg_snapshot))
  AND f.pos >= CASE WHEN %(until)b::text IS NOT NULL THEN %(pos)b::bigint ELSE (
      SELECT min(x.pos) FROM (
          SELECT g.pos FROM daybreak.feed g
          WHERE g.xid >= %(xmax)b::text::xid8 OR g.xid = ANY (%(under_way)b::text[]::xid8[]) OFFSET 0) x) END
ORDER BY f.pos LIMIT %(limit)b::bigint
