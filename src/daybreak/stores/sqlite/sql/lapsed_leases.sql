SELECT seq FROM lease WHERE until <= ? AND term <= ? ORDER BY until, seq LIMIT ?
