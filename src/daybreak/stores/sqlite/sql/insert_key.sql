INSERT INTO idem (key, digest, id) VALUES (?, ?, ?)
