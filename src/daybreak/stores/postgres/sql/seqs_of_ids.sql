SELECT j.id, j.seq FROM daybreak.job j WHERE j.id = ANY (%b::text[])
