SELECT count(*) FROM (
    SELECT 1 FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
        SELECT 1 FROM daybreak.ready r
        WHERE r.lane = a.lane AND (r.band, r.ord, r.seq) < (%b::smallint, %b::bigint, %b::bigint) LIMIT %b::bigint) t
    LIMIT %b::bigint) x
