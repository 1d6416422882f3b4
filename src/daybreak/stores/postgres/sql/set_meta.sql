INSERT INTO daybreak.meta (name, value) VALUES (%b::text, %b::text) ON CONFLICT (name) DO UPDATE SET value = excluded.value
