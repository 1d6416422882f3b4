SELECT attempt, fence, n, carry, history FROM ready WHERE lane = ? AND band = ? AND ord = ? AND seq = ?
