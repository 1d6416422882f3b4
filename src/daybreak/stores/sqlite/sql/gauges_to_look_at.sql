SELECT name FROM gauge WHERE look <= ? ORDER BY look, name LIMIT ?
