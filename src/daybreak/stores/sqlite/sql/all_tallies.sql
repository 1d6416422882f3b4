SELECT lane, priority, state, n FROM tally WHERE n <> 0
