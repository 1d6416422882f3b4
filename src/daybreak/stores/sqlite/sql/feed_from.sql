SELECT pos, lines FROM feed WHERE pos >= ? ORDER BY pos
