UPDATE job SET band = ?, ord = ?, priority = ? WHERE seq = ?
