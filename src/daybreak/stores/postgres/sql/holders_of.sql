SELECT u.name, u.seq FROM daybreak.uniq u WHERE u.name = ANY (%b::text[])
