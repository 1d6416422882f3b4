SELECT t.seq FROM daybreak.done t WHERE t.reason = %b::text AND t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint
