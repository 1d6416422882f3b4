SELECT seq FROM done WHERE purge_at <= ? ORDER BY purge_at, seq LIMIT ?
