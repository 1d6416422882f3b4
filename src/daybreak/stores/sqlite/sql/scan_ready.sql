SELECT band, ord, seq FROM ready WHERE lane = ? AND (band, ord, seq) > (?, ?, ?) ORDER BY band, ord, seq LIMIT ?
