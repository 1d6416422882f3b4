INSERT INTO ready (lane, band, ord, seq, attempt, fence, n, carry, history) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
