SELECT seq FROM job WHERE run = ? AND seq < ? ORDER BY seq DESC LIMIT ?
