SELECT t.band, t.ord, t.seq FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
    SELECT r.band, r.ord, r.seq FROM daybreak.ready r
    WHERE r.lane = a.lane AND (r.band, r.ord, r.seq) > (%b::smallint, %b::bigint, %b::bigint)
    ORDER BY r.band, r.ord, r.seq LIMIT %b::bigint) t
ORDER BY t.band, t.ord, t.seq LIMIT %b::bigint
