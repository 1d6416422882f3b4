INSERT INTO daybreak.aside (n, spec, why) VALUES (%b::bigint, %b::bytea, %b::text) ON CONFLICT (n) DO NOTHING
