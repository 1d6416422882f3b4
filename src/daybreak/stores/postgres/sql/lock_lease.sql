SELECT p.seq FROM daybreak.lease p WHERE p.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE
