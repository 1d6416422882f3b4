INSERT INTO delayed (seq, clock, due, attempt, fence, n, carry, history) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
