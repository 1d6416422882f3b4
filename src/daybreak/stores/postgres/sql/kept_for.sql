SELECT g.name FROM daybreak.gauge g WHERE g.kept_seq = %b::bigint
