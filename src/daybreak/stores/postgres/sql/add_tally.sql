INSERT INTO daybreak.tally (lane, priority, state, n) SELECT * FROM unnest(%b::integer[], %b::smallint[], %b::text[], %b::bigint[])
