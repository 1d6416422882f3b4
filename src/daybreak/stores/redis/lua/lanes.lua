-- All lanes and what is counted of them.
return { text(server), call('HGETALL', P .. 'lane'), call('HGETALL', P .. 'tally') }
