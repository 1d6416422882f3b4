-- Jobs in a final state.

-- name: delete_done
DELETE FROM done WHERE seq = ?

-- name: insert_done
INSERT INTO done (seq, state, reason, attempt, fence, n, started, finished, purge_at, result, carry, history, entry)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: stale_jobs
SELECT seq FROM done WHERE purge_at <= ? ORDER BY purge_at, seq LIMIT ?
