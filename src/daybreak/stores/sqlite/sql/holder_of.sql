SELECT seq FROM uniq WHERE name = ?
