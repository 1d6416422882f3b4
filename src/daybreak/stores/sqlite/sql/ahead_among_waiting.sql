SELECT count(*) FROM (SELECT 1 FROM held WHERE cause = ? AND lane = ? AND (band, ord, seq) < (?, ?, ?) LIMIT ?)
