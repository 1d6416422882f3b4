-- A key that is there already was spent, and its time is over.
INSERT INTO daybreak.idem AS i (key, digest, id, at) SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[])
ON CONFLICT (key) DO UPDATE SET digest = EXCLUDED.digest, id = EXCLUDED.id, at = EXCLUDED.at, dropped = NULL
