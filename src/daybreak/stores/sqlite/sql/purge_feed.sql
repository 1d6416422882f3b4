DELETE FROM feed WHERE pos <= ?
