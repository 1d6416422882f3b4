DELETE FROM daybreak.ready p USING unnest(%b::integer[], %b::smallint[], %b::bigint[], %b::bigint[]) AS a(lane, band, ord, seq)
WHERE p.lane = a.lane AND p.band = a.band AND p.ord = a.ord AND p.seq = a.seq
