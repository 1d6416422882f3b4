SELECT seq FROM lease WHERE seq < ? ORDER BY seq DESC LIMIT ?
