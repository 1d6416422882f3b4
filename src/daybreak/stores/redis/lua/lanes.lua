-- All lanes, and what is counted of them: the tallies, or the totals.
return { stamp, call('HGETALL', P .. 'lane'), call('HGETALL', P .. arg()) }
