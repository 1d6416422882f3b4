-- The first jobs of one lane, in rank order, with all that a lease carries.
-- CROSS JOIN keeps the walk on the clustered index of ready; the planner may not turn it round.
SELECT r.band, r.ord, r.seq, r.attempt, r.fence, r.n, r.carry, r.history,
       j.id, j.priority, j.asked, j.created, j.expires, j.by, j.run, j.owner, j.key, j.uniq, j.options, j.extra, j.args
FROM ready r CROSS JOIN job j ON j.seq = r.seq
WHERE r.lane = ?
ORDER BY r.band, r.ord, r.seq
LIMIT ?
