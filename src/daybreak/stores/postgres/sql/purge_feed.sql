DELETE FROM daybreak.feed f WHERE f.pos = ANY (%b::bigint[])
