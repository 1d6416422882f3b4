-- Counts of jobs by state, and totals of what happened.

-- name: add_tally
INSERT INTO tally (lane, priority, state, n, totals) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (lane, priority, state) DO UPDATE SET n = n + excluded.n, totals = excluded.totals

-- name: all_tallies
SELECT lane, priority, state, n FROM tally WHERE n <> 0

-- name: all_totals
SELECT l.queue, l.task, l.version, t.priority, t.totals
FROM tally t JOIN lane l ON l.id = t.lane
WHERE t.state = 'totals' AND (?1 IS NULL OR l.queue = ?1)

-- name: load_totals
SELECT totals FROM tally WHERE lane = ? AND priority = ? AND state = 'totals'
