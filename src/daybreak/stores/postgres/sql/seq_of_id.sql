SELECT j.seq FROM daybreak.job j WHERE j.id = %b::text
