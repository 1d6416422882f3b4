-- Jobs in a final state.

-- name: delete_done
DELETE FROM done WHERE seq = ?

-- name: insert_done
INSERT INTO done (seq, state, reason, attempt, fence, n, started, finished, purge_at, result, carry, history)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: load_done
SELECT attempt, fence, n, carry, history, state, reason, started, finished, purge_at, result FROM done WHERE seq = ?

-- name: stale_jobs
SELECT seq FROM done WHERE purge_at <= ? ORDER BY purge_at, seq LIMIT ?
