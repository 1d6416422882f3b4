SELECT count(*) FROM (SELECT 1 FROM ready WHERE lane = ? AND (band, ord, seq) < (?, ?, ?) LIMIT ?)
