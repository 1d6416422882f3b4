UPDATE lease SET fence = ?, n = ?, worker = ?, until = ?, term = ?, call = NULL, reaped = 1, history = ? WHERE seq = ?
