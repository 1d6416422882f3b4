SELECT count(*) FROM (SELECT 1 FROM held WHERE cause = ? LIMIT ?)
