-- All lanes, and their counts: the tallies, or the totals.
return { stamp, call('HGETALL', P .. 'lane'), call('HGETALL', P .. arg()) }
