DELETE FROM daybreak.delayed p WHERE p.seq = ANY (%b::bigint[])
