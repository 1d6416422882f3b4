SELECT seq FROM delayed WHERE clock = ? AND due <= ? ORDER BY due, seq LIMIT ?
