SELECT p.seq FROM daybreak.job j
JOIN daybreak.ready p ON p.lane = j.lane AND p.band = j.band AND p.ord = j.ord AND p.seq = j.seq
WHERE j.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE OF p
