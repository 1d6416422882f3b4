SELECT seq FROM job WHERE expires <= ? ORDER BY expires, seq LIMIT ?
