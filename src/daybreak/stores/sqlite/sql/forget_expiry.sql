UPDATE job SET expires = NULL WHERE seq = ?
