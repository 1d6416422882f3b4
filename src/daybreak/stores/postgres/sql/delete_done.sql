DELETE FROM daybreak.done p WHERE p.seq = ANY (%b::bigint[])
