INSERT OR REPLACE INTO uniq (name, seq) VALUES (?, ?)
