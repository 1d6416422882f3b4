SELECT min(pos) FROM feed WHERE length(lines) > 0
