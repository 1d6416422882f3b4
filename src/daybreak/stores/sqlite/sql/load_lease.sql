SELECT attempt, fence, n, carry, history, worker, until, term, started, call, reaped, alone, suspending, cancelling,
    ahead
FROM lease WHERE seq = ?
