SELECT seq FROM done WHERE reason = ? AND seq < ? ORDER BY seq DESC LIMIT ?
