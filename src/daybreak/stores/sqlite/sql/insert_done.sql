INSERT INTO done (seq, state, reason, attempt, fence, n, started, finished, purge_at, result, carry, history)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
