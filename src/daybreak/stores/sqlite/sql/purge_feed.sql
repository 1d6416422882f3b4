DELETE FROM feed WHERE pos <= ? AND pos < (SELECT max(pos) FROM feed)
