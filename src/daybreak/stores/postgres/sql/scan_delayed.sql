SELECT t.due, t.seq FROM (VALUES (0::smallint), (1::smallint)) AS a(clock) CROSS JOIN LATERAL (
    SELECT d.due, d.seq FROM daybreak.delayed d WHERE d.clock = a.clock AND (d.due, d.seq) > (%b::bigint, %b::bigint)
    ORDER BY d.due, d.seq LIMIT %b::bigint) t
ORDER BY t.due, t.seq LIMIT %b::bigint
