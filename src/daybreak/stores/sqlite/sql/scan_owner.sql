SELECT seq FROM job WHERE owner = ? AND seq < ? ORDER BY seq DESC LIMIT ?
