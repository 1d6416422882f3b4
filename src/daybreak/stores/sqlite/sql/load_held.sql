SELECT attempt, fence, n, carry, history, state, clock, due FROM held WHERE seq = ?
