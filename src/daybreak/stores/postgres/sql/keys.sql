-- Idempotency keys and unique names.

-- name: delete_keys
DELETE FROM daybreak.idem i WHERE i.id = ANY (%b::text[])

-- name: delete_uniques
-- A name without a seq is deleted whoever has it.
DELETE FROM daybreak.uniq u USING unnest(%b::text[], %b::bigint[]) AS a(name, seq)
WHERE u.name = a.name AND u.seq = coalesce(a.seq, u.seq)

-- name: holders_of
SELECT u.name, u.seq FROM daybreak.uniq u WHERE u.name = ANY (%b::text[])

-- name: insert_keys
-- A key that exists already was spent, and its retention is over.
INSERT INTO daybreak.idem AS i (key, digest, id, at) SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[])
ON CONFLICT (key) DO UPDATE SET digest = EXCLUDED.digest, id = EXCLUDED.id, at = EXCLUDED.at, dropped = NULL

-- name: insert_uniques
-- A name that exists already belongs to a running job that gives it up; the row of that job is locked.
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
-- A transaction that checks whether a name is free and then takes it must lock the name first. All transactions lock names
-- in the same order, so they cannot deadlock.
SELECT pg_advisory_xact_lock(%b::integer, hashtext(a.name))
FROM (SELECT DISTINCT hashtext(n) AS h, min(n) AS name FROM unnest(%b::text[]) n GROUP BY hashtext(n) ORDER BY 1) a

-- name: purge_keys
-- `dropped` is checked again on the locked row: a submission may have reused the key while this statement waited.
DELETE FROM daybreak.idem i WHERE i.dropped <= %b::bigint AND i.key IN (
    SELECT k.key FROM daybreak.idem k WHERE k.dropped <= %b::bigint ORDER BY k.dropped, k.key LIMIT %b::bigint)

-- name: spend_keys
-- `since` is NULL for most: then a key is spent from its own submit on, or from that of its job.
UPDATE daybreak.idem i SET dropped = a.keys_for + coalesce(a.since, i.at, a.arrived)
FROM unnest(%b::text[], %b::bigint[], %b::bigint[], %b::bigint[]) AS a(id, keys_for, since, arrived) WHERE i.id = a.id
