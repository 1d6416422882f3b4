INSERT INTO tally (lane, priority, state, n) VALUES (?, ?, ?, ?)
ON CONFLICT (lane, priority, state) DO UPDATE SET n = n + excluded.n
