DELETE FROM daybreak.uniq u WHERE u.name = %b::text AND u.seq = %b::bigint
