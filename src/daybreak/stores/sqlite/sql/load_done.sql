SELECT attempt, fence, n, carry, history, state, reason, started, finished, purge_at, result FROM done WHERE seq = ?
