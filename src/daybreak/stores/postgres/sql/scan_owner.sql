SELECT t.seq FROM daybreak.job t WHERE t.owner = %b::text AND t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint
