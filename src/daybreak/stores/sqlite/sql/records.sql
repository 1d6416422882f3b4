-- Records, queue settings, and the store's own values (meta).

-- name: all_records
SELECT name, revision, value FROM record WHERE kind = ? AND (?2 IS NULL OR name = ?2) ORDER BY name

-- name: delete_record
DELETE FROM record WHERE kind = ? AND name = ?

-- name: get_meta
SELECT value FROM meta WHERE name = ?

-- name: get_record
SELECT revision, value FROM record WHERE kind = ? AND name = ?

-- name: put_record
INSERT INTO record (kind, name, revision, value) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, value = excluded.value

-- name: set_meta
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value
