SELECT revision, value FROM record WHERE kind = ? AND name = ?
