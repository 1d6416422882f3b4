INSERT INTO daybreak.record (kind, name, revision, value) VALUES (%b::text, %b::text, %b::bigint, %b::bytea)
ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, value = excluded.value
