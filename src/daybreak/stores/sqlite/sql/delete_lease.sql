DELETE FROM lease WHERE seq = ?
