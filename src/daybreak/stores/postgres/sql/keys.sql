-- Idempotency keys and unique names.

-- name: delete_keys
DELETE FROM daybreak.idem i WHERE i.id = %b::text

-- name: delete_unique
DELETE FROM daybreak.uniq u WHERE u.name = %b::text AND u.seq = %b::bigint

-- name: holder_of
SELECT u.seq FROM daybreak.uniq u WHERE u.name = %b::text

-- name: holders_of
SELECT u.name, u.seq FROM daybreak.uniq u WHERE u.name = ANY (%b::text[])

-- name: insert_keys
-- A key that is there already was spent, and its time is over.
INSERT INTO daybreak.idem AS i (key, digest, id, at) SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[])
ON CONFLICT (key) DO UPDATE SET digest = EXCLUDED.digest, id = EXCLUDED.id, at = EXCLUDED.at, dropped = NULL

-- name: insert_uniques
-- A name that is there already is given up by a running job, whose row is locked.
INSERT INTO daybreak.uniq AS u (name, seq) SELECT * FROM unnest(%b::text[], %b::bigint[])
ON CONFLICT (name) DO UPDATE SET seq = EXCLUDED.seq

-- name: keys_of
SELECT i.key, i.digest, i.id, j.seq, i.dropped FROM daybreak.idem i LEFT JOIN daybreak.job j ON j.id = i.id
WHERE i.key = ANY (%b::text[])

-- name: keys_of_jobs
SELECT i.id, i.key, i.digest FROM daybreak.idem i WHERE i.id = ANY (%b::text[]) ORDER BY i.key

-- name: known_keys
SELECT i.key, i.digest, i.id, j.seq IS NULL FROM daybreak.idem i LEFT JOIN daybreak.job j ON j.id = i.id
WHERE i.key = ANY (%b::text[])
  AND (j.seq IS NOT NULL OR i.dropped > coalesce(%b::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))

-- name: lock_names
-- Who looks whether a name is taken and then takes it must be alone with it; names are locked in one order.
SELECT pg_advisory_xact_lock(%b::integer, hashtext(a.name))
FROM (SELECT DISTINCT hashtext(n) AS h, min(n) AS name FROM unnest(%b::text[]) n GROUP BY hashtext(n) ORDER BY 1) a

-- name: purge_keys
-- What was dropped is asked again of the row itself: a submission may have taken the key over while we waited for it.
DELETE FROM daybreak.idem i WHERE i.dropped <= %b::bigint AND i.key IN (
    SELECT k.key FROM daybreak.idem k WHERE k.dropped <= %b::bigint ORDER BY k.dropped, k.key LIMIT %b::bigint)

-- name: spend_keys
UPDATE daybreak.idem i SET dropped = %b::bigint + coalesce(%b::bigint, i.at, %b::bigint) WHERE i.id = %b::text
