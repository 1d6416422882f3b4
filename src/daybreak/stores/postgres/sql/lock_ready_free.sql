-- Those of the chosen that nobody else holds.
SELECT l.seq FROM unnest(%b::integer[], %b::smallint[], %b::bigint[], %b::bigint[]) AS a(lane, band, ord, seq)
CROSS JOIN LATERAL (
    SELECT p.seq FROM daybreak.ready p
    WHERE p.lane = a.lane AND p.band = a.band AND p.ord = a.ord AND p.seq = a.seq FOR UPDATE SKIP LOCKED) l
