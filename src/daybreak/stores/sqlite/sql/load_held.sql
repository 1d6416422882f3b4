SELECT attempt, fence, n, carry, history, state, clock, due, cause FROM held WHERE seq = ?
