INSERT INTO daybreak.uniq (name, seq) SELECT * FROM unnest(%b::text[], %b::bigint[])
