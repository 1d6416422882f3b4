SELECT j.seq FROM idem i JOIN job j ON j.id = i.id WHERE i.key = ? AND j.seq < ? LIMIT ?
