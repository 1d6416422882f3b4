INSERT INTO tally (lane, priority, state, n, totals) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (lane, priority, state) DO UPDATE SET n = n + excluded.n, totals = excluded.totals
