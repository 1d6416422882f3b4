-- Records, queue settings and the store's own metadata.

-- name: all_records
SELECT r.name, r.revision, r.value FROM daybreak.record r WHERE r.kind = %b::text AND (%b::text IS NULL OR r.name = %b::text) ORDER BY r.name

-- name: delete_queue
DELETE FROM daybreak.queue q WHERE q.name = %b::text

-- name: delete_record
DELETE FROM daybreak.record r WHERE r.kind = %b::text AND r.name = %b::text

-- name: get_queues
SELECT q.name, q.paused, q.max_running, q.capacity, q.sheds, q.aging, q.patience, q.weight FROM daybreak.queue q WHERE q.name = ANY (%b::text[])

-- name: get_record
SELECT r.revision, r.value FROM daybreak.record r WHERE r.kind = %b::text AND r.name = %b::text FOR UPDATE

-- name: lock_queues
-- In the order of names, so that two transactions that lock several queues cannot deadlock.
SELECT q.name FROM daybreak.queue q WHERE q.name = ANY (%b::text[]) ORDER BY q.name FOR UPDATE

-- name: next_revisions
SELECT nextval('daybreak.revision') FROM generate_series(1, %b::integer)

-- name: put_alone
-- Writes one record unconditionally. Its revision is drawn after its name is locked: see lock_names.
WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(%b::integer, hashtext(%b::text)))
INSERT INTO daybreak.record (kind, name, revision, value)
SELECT %b::text, %b::text, nextval('daybreak.revision'), %b::bytea FROM alone
ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, value = excluded.value
RETURNING revision

-- name: put_queue
INSERT INTO daybreak.queue (name, paused, max_running, capacity, sheds, aging, patience, weight)
VALUES (%b::text, %b::boolean, %b::bigint, %b::bigint, %b::boolean, %b::boolean, %b::bigint, %b::bigint)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, max_running = excluded.max_running,
    capacity = excluded.capacity, sheds = excluded.sheds, aging = excluded.aging, patience = excluded.patience,
    weight = excluded.weight

-- name: put_record
INSERT INTO daybreak.record (kind, name, revision, value) VALUES (%b::text, %b::text, %b::bigint, %b::bytea)
ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, value = excluded.value

-- name: set_version
-- The version of the schema, and the oldest program version that can use it.
INSERT INTO daybreak.meta (name, value) VALUES ('version', '{version}'), ('needs', '{needs}')
ON CONFLICT (name) DO UPDATE SET value = excluded.value
