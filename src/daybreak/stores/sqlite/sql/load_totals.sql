SELECT totals FROM tally WHERE lane = ? AND priority = ? AND state = 'totals'
