SELECT due, seq FROM delayed WHERE clock = ? AND (due, seq) > (?, ?) ORDER BY due, seq LIMIT ?
