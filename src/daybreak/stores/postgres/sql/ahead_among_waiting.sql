SELECT count(*) FROM (
    SELECT 1 FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
        SELECT 1 FROM daybreak.held h
        WHERE h.cause = %b::text AND h.lane = a.lane
          AND (h.band, h.ord, h.seq) < (%b::smallint, %b::bigint, %b::bigint) LIMIT %b::bigint) t
    LIMIT %b::bigint) x
