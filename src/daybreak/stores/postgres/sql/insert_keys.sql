INSERT INTO daybreak.idem (key, digest, id) SELECT * FROM unnest(%b::text[], %b::text[], %b::text[])
