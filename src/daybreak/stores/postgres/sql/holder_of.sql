SELECT u.seq FROM daybreak.uniq u WHERE u.name = %b::text
