INSERT INTO held (seq, state, cause, lane, band, ord, clock, due, attempt, fence, n, carry, history)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
