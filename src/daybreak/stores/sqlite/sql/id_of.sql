SELECT id FROM job WHERE seq = ?
