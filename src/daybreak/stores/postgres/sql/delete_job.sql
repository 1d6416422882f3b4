DELETE FROM daybreak.job j WHERE j.seq = %b::bigint
