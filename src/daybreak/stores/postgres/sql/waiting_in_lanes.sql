-- The first of every lane that wait for a resource, in rank order. From lane to lane by the index: those who wait may
-- be very many.
WITH RECURSIVE lanes AS (
    SELECT min(h.lane) AS lane FROM daybreak.held h WHERE h.cause = %(cause)b::text
    UNION ALL
    SELECT (SELECT min(h.lane) FROM daybreak.held h WHERE h.cause = %(cause)b::text AND h.lane > l.lane)
    FROM lanes l WHERE l.lane IS NOT NULL)
SELECT w.lane, w.seq FROM lanes l CROSS JOIN LATERAL (
    SELECT h.lane, h.band, h.ord, h.seq FROM daybreak.held h WHERE h.cause = %(cause)b::text AND h.lane = l.lane
    ORDER BY h.band, h.ord, h.seq LIMIT %(most)b::bigint) w
ORDER BY w.lane, w.band, w.ord, w.seq
