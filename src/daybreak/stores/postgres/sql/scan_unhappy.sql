SELECT t.seq FROM daybreak.done t WHERE t.state = %b::text AND t.state <> 'completed' AND t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint
