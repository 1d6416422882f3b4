DELETE FROM daybreak.lease p WHERE p.seq = ANY (%b::bigint[])
