SELECT p.seq FROM daybreak.done p WHERE p.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE
