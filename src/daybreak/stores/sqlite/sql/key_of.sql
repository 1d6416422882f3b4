SELECT i.digest, i.id, j.seq, i.dropped FROM idem i LEFT JOIN job j ON j.id = i.id WHERE i.key = ?
