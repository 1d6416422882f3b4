-- The first jobs of some lanes, in rank order. Nothing is locked, and of each only what its rank needs: see claim.py.
SELECT r.lane, r.band, r.ord, r.seq, r.priority, r.expires, r.attempt, r.needs, r.carry
FROM unnest(%b::integer[]) AS a(lane)
CROSS JOIN LATERAL (
    SELECT r.lane, r.band, r.ord, r.seq, r.priority, r.expires, r.attempt, r.needs,
           CASE WHEN r.needs IS NOT NULL THEN r.carry END AS carry
    FROM daybreak.ready r
    WHERE r.lane = a.lane AND r.seq <> ALL (%b::bigint[]) ORDER BY r.band, r.ord, r.seq LIMIT %b::bigint) r
ORDER BY r.lane, r.band, r.ord, r.seq
