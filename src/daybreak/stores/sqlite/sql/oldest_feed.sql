SELECT pos, at, lines FROM feed WHERE length(lines) > 0 ORDER BY pos LIMIT ?
