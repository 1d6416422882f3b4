SELECT seq FROM job WHERE lane = ? AND seq < ? ORDER BY seq DESC LIMIT ?
