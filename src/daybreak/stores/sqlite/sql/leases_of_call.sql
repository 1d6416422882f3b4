SELECT seq FROM lease WHERE worker = ? AND call = ? ORDER BY seq
