-- The first jobs of some lanes, in rank order, with all that a lease carries. Nothing is locked: see claim.py.
SELECT r.lane, r.band, r.ord, r.seq, r.priority, r.expires, r.attempt, r.fence, r.n, r.carry, r.history,
       j.id, j.asked, j.created, j.by, j.run, j.owner, j.key, j.uniq, j.options, j.extra, j.args
FROM unnest(%b::integer[]) AS a(lane)
CROSS JOIN LATERAL (
    SELECT * FROM daybreak.ready r WHERE r.lane = a.lane AND r.seq <> ALL (%b::bigint[])
    ORDER BY r.band, r.ord, r.seq LIMIT %b::bigint) r
CROSS JOIN LATERAL (SELECT * FROM daybreak.job j WHERE j.seq = r.seq OFFSET 0) j
ORDER BY r.lane, r.band, r.ord, r.seq
