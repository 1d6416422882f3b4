INSERT INTO record (kind, name, revision, value) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, value = excluded.value
