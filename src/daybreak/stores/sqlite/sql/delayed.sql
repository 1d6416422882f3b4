-- Jobs that wait for an instant, and jobs that expire at one.

-- name: delete_delayed
DELETE FROM delayed WHERE seq = ?

-- name: due_jobs
SELECT seq FROM delayed WHERE clock = ? AND due <= ? ORDER BY due, seq LIMIT ?

-- name: insert_delayed
INSERT INTO delayed (seq, clock, due, attempt, fence, n, carry, history) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: overdue_jobs
SELECT seq FROM job WHERE expires <= ? ORDER BY expires, seq LIMIT ?
