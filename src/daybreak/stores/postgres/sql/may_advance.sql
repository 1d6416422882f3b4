-- Each by the first entry of its index: an IN or an EXISTS may be answered by reading everything.
SELECT t.now, t.has_incoming OR coalesce(least(t.first, t.second, t.look) <= t.now, false)
           OR coalesce(t.expires <= t.now, false),
       least(t.first, t.second, t.look)
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - a.offset_ AS now,
             EXISTS (SELECT 1 FROM daybreak.incoming) AS has_incoming,
             (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 0) AS first,
             (SELECT min(d.due) - a.offset_ FROM daybreak.delayed d WHERE d.clock = 1) AS second,
             (SELECT min(g.look) FROM daybreak.gauge g WHERE g.look IS NOT NULL) AS look,
             (SELECT min(j.expires) FROM daybreak.job j WHERE j.expires IS NOT NULL) AS expires
      FROM (SELECT %b::bigint AS offset_) a) t
