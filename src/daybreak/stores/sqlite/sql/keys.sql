-- Idempotency keys and unique names.

-- name: delete_keys
DELETE FROM idem WHERE id = ?

-- name: delete_unique
DELETE FROM uniq WHERE name = ? AND seq = ?

-- name: free_unique
DELETE FROM uniq WHERE name = ?

-- name: holder_of
SELECT seq FROM uniq WHERE name = ?

-- name: insert_key
INSERT OR REPLACE INTO idem (key, digest, id, at) VALUES (?, ?, ?, ?)

-- name: insert_unique
INSERT OR REPLACE INTO uniq (name, seq) VALUES (?, ?)

-- name: key_of
SELECT i.digest, i.id, j.seq, i.dropped FROM idem i LEFT JOIN job j ON j.id = i.id WHERE i.key = ?

-- name: keys_of_job
SELECT key, digest FROM idem WHERE id = ? ORDER BY key

-- name: purge_keys
DELETE FROM idem WHERE key IN (SELECT key FROM idem WHERE dropped <= ? ORDER BY dropped, key LIMIT ?)

-- name: spend_keys
UPDATE idem SET dropped = ? + coalesce(?, at, ?) WHERE id = ?
