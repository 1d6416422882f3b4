DELETE FROM done WHERE seq = ?
