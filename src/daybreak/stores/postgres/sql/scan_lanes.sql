SELECT t.seq FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
    SELECT j.seq FROM daybreak.job j WHERE j.lane = a.lane AND j.seq < %b::bigint ORDER BY j.seq DESC LIMIT %b::bigint) t
ORDER BY t.seq DESC LIMIT %b::bigint
