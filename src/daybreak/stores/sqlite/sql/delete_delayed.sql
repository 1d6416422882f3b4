DELETE FROM delayed WHERE seq = ?
