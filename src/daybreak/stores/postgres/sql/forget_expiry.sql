UPDATE daybreak.job j SET expires = NULL WHERE j.seq = ANY (%b::bigint[])
