SELECT seq FROM job WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?
