SELECT j.seq, j.options FROM unnest(%b::bigint[]) AS a(seq)
CROSS JOIN LATERAL (SELECT j.seq, j.options FROM daybreak.job j WHERE j.seq = a.seq OFFSET 0) j
