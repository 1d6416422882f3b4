SELECT j.seq FROM daybreak.job j WHERE j.seq < %b::bigint AND NOT EXISTS (SELECT 1 FROM daybreak.done d WHERE d.seq = j.seq)
ORDER BY j.seq DESC LIMIT %b::bigint
