-- How those who wait for a resource in one lane are run, the first of them.
SELECT h.seq, j.options FROM held h CROSS JOIN job j ON j.seq = h.seq
WHERE h.cause = ? AND h.lane = ?
ORDER BY h.band, h.ord, h.seq
LIMIT ?
