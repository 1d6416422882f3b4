SELECT j.seq FROM daybreak.job j WHERE j.expires <= %b::bigint ORDER BY j.expires, j.seq LIMIT %b::bigint
