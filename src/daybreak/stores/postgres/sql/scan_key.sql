SELECT t.seq FROM daybreak.idem i JOIN daybreak.job t ON t.id = i.id WHERE i.key = %b::text AND t.seq < %b::bigint LIMIT %b::bigint
