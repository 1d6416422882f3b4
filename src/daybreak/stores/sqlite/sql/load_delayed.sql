SELECT attempt, fence, n, carry, history, clock, due FROM delayed WHERE seq = ?
