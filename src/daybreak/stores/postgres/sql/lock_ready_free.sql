-- Those of the chosen that nobody else holds, with all that a lease carries.
SELECT l.seq, l.attempt, l.fence, l.n, l.carry, l.history, j.id, j.asked, j.created, j.by, j.run, j.owner, j.key, j.uniq,
       j.options, j.extra, j.args
FROM unnest(%b::integer[], %b::smallint[], %b::bigint[], %b::bigint[]) AS a(lane, band, ord, seq)
CROSS JOIN LATERAL (
    SELECT p.seq, p.attempt, p.fence, p.n, p.carry, p.history FROM daybreak.ready p
    WHERE p.lane = a.lane AND p.band = a.band AND p.ord = a.ord AND p.seq = a.seq FOR UPDATE SKIP LOCKED) l
CROSS JOIN LATERAL (SELECT * FROM daybreak.job j WHERE j.seq = l.seq OFFSET 0) j
