DELETE FROM idem WHERE id = ?
