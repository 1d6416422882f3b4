DELETE FROM job WHERE seq = ?
