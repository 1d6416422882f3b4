-- The job that would be claimed last.
SELECT t.seq, t.priority FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
    SELECT r.band, r.ord, r.seq, r.priority FROM daybreak.ready r WHERE r.lane = a.lane
    ORDER BY r.band DESC, r.ord DESC, r.seq DESC LIMIT 1) t
ORDER BY t.band DESC, t.ord DESC, t.seq DESC LIMIT 1
