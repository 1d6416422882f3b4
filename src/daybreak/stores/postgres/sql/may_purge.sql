-- Each by the first entry of its index. Rows of the feed go in their order, so the first says whether any does.
SELECT t.now, coalesce(t.done <= t.now, false) OR coalesce(t.told <= t.now - %b::bigint, false)
           OR coalesce(t.dropped <= t.now, false)
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %b::bigint AS now,
             (SELECT min(d.purge_at) FROM daybreak.done d WHERE d.purge_at IS NOT NULL) AS done,
             (SELECT f.at FROM daybreak.feed f ORDER BY f.pos LIMIT 1) AS told,
             (SELECT min(k.dropped) FROM daybreak.idem k WHERE k.dropped IS NOT NULL) AS dropped) t
