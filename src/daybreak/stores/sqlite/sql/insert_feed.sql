INSERT INTO feed (pos, at, lines) VALUES (?, ?, ?)
