SELECT key, digest FROM idem WHERE id = ? ORDER BY key
