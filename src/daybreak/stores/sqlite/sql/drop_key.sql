UPDATE idem SET dropped = ? WHERE key = ?
