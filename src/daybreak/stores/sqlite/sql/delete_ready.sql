DELETE FROM ready WHERE lane = ? AND band = ? AND ord = ? AND seq = ?
