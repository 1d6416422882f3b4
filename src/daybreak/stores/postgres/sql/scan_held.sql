SELECT t.seq FROM daybreak.held t WHERE t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint
