-- A name that is there already is given up by a running job, whose row is locked.
INSERT INTO daybreak.uniq AS u (name, seq) SELECT * FROM unnest(%b::text[], %b::bigint[])
ON CONFLICT (name) DO UPDATE SET seq = EXCLUDED.seq
