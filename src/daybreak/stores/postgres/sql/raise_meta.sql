-- A number that only grows, also when two set it at once.
INSERT INTO daybreak.meta (name, value) VALUES (%b::text, %b::text)
ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value::bigint, excluded.value::bigint)::text
