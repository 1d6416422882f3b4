INSERT INTO lease (
    seq, lane, priority, uniq, attempt, fence, n, worker, until, term, started, call, carry, history, needs, ahead
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
