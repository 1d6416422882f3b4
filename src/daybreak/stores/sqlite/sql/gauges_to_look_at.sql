SELECT name FROM gauge WHERE look <= ? ORDER BY name LIMIT ?
