DELETE FROM record WHERE kind = ? AND name = ?
