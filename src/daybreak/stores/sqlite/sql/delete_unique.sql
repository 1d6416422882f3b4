DELETE FROM uniq WHERE name = ? AND seq = ?
