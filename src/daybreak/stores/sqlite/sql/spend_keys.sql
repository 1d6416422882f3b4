UPDATE idem SET dropped = ? + coalesce(?, at, ?) WHERE id = ?
