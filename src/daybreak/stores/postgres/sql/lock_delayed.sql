SELECT p.seq FROM daybreak.delayed p WHERE p.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE
