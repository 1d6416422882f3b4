SELECT p.seq FROM daybreak.held p WHERE p.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE
