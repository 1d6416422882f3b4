SELECT seq FROM held WHERE cause = ? AND lane = ? ORDER BY band, ord, seq LIMIT ?
