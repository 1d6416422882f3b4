INSERT OR REPLACE INTO idem (key, digest, id, at) VALUES (?, ?, ?, ?)
