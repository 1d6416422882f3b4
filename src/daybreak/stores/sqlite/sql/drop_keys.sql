UPDATE idem SET dropped = ? WHERE id = ?
