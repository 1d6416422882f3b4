SELECT lane, priority, uniq, attempt, fence, n, worker, started, suspending, cancelling, carry, history FROM lease WHERE seq = ?
