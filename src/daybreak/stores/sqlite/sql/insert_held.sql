INSERT INTO held (seq, state, clock, due, attempt, fence, n, carry, history) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
