INSERT INTO uniq (name, seq) VALUES (?, ?)
