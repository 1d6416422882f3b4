SELECT band, ord, seq FROM ready WHERE lane = ? ORDER BY band DESC, ord DESC, seq DESC LIMIT 1
