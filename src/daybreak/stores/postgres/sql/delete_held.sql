DELETE FROM daybreak.held p WHERE p.seq = ANY (%b::bigint[])
