-- Flights and known results.

-- name: add_room
INSERT INTO daybreak.room AS r (task, entries, size) VALUES (%b::text, %b::bigint, %b::bigint)
ON CONFLICT (task) DO UPDATE SET entries = r.entries + excluded.entries, size = r.size + excluded.size

-- name: cached_flights
-- One page of usable results, most recently used first.
SELECT f.flight, f.task, f.version, f.job, f.parts, f.size, f.ran, f.hits, f.created, f.used, f.until, f.number
FROM daybreak.flight f
WHERE f.flight IS NOT NULL AND f.is_known AND (f.until IS NULL OR f.until > %(now)b::bigint)
  AND (f.used, f.number) < (%(used)b::bigint, %(number)b::bigint)
ORDER BY f.used DESC, f.number DESC LIMIT %(limit)b::bigint

-- name: cached_flights_named
-- The same for some flights.
SELECT f.flight, f.task, f.version, f.job, f.parts, f.size, f.ran, f.hits, f.created, f.used, f.until, f.number
FROM daybreak.flight f
WHERE f.flight = ANY (%(flights)b::text[]) AND f.is_known AND (f.until IS NULL OR f.until > %(now)b::bigint)
  AND f.task = coalesce(%(task)b::text, f.task) AND (f.used, f.number) < (%(used)b::bigint, %(number)b::bigint)
ORDER BY f.used DESC, f.number DESC LIMIT %(limit)b::bigint

-- name: cached_flights_of_task
-- The same for one task, by its index.
SELECT f.flight, f.task, f.version, f.job, f.parts, f.size, f.ran, f.hits, f.created, f.used, f.until, f.number
FROM daybreak.flight f
WHERE f.flight IS NOT NULL AND f.is_known AND (f.until IS NULL OR f.until > %(now)b::bigint) AND f.task = %(task)b::text
  AND (f.used, f.number) < (%(used)b::bigint, %(number)b::bigint)
ORDER BY f.used DESC, f.number DESC LIMIT %(limit)b::bigint

-- name: cached_results
-- One page of known results with the results themselves, in the order of their creation.
SELECT f.flight, f.task, f.version, f.job, f.parts, f.size, f.ran, f.hits, f.created, f.used, f.until, f.number, r.result
FROM daybreak.flight f LEFT JOIN daybreak.result r ON r.number = f.number
WHERE f.flight IS NOT NULL AND f.is_known AND f.task = coalesce(%(task)b::text, f.task) AND f.number > %(after)b::bigint
  AND (%(flights)b::text[] IS NULL OR f.flight = ANY (%(flights)b::text[]))
ORDER BY f.number LIMIT %(limit)b::bigint

-- name: delete_flights
DELETE FROM daybreak.flight f WHERE f.number = ANY (%b::bigint[])

-- name: delete_results
DELETE FROM daybreak.result r WHERE r.number = ANY (%b::bigint[])

-- name: flights_of_entries
SELECT DISTINCT f.flight FROM daybreak.flight f WHERE f.number = ANY (%b::bigint[]) AND f.flight IS NOT NULL

-- name: insert_results
INSERT INTO daybreak.result (number, result) SELECT * FROM unnest(%b::bigint[], %b::bytea[])

-- name: known_flights
SELECT f.flight FROM daybreak.flight f
WHERE f.flight IS NOT NULL AND f.is_known AND f.task = coalesce(%b::text, f.task)
  AND (NOT f.landing OR f.until IS NULL OR f.until > %b::bigint)
ORDER BY f.number LIMIT %b::bigint

-- name: landing_flights
SELECT f.flight FROM daybreak.flight f WHERE f.landing ORDER BY f.number LIMIT %b::bigint

-- name: lapsed_flights
SELECT f.flight FROM daybreak.flight f
WHERE f.flight IS NOT NULL AND f.until IS NOT NULL AND f.until <= %b::bigint AND NOT f.landing
ORDER BY f.until, f.number LIMIT %b::bigint

-- name: least_used_flights
SELECT f.flight FROM daybreak.flight f
WHERE f.flight IS NOT NULL AND f.is_known AND f.task = %b::text AND NOT f.landing
ORDER BY f.used, f.number LIMIT %b::bigint

-- name: load_entries
-- Their names are locked already; those without one are locked in order here.
SELECT f.number, f.flight, f.task, f.version, f.created, f.used, f.leader, f.landing, f.is_known, f.job, f.parts, f.size,
       f.ran, f.until, f.hits, f.refs
FROM daybreak.flight f WHERE f.number = ANY (%b::bigint[]) ORDER BY f.number FOR UPDATE

-- name: load_flights
-- (SELECT ...): as in load_jobs.
SELECT f.number, f.flight, f.task, f.version, f.created, f.used, f.leader, f.landing, f.is_known, f.job, f.parts, f.size,
       f.ran, f.until, f.hits, f.refs
FROM daybreak.flight f WHERE f.flight = ANY ((SELECT %b::text[])::text[])

-- name: lock_free_delayed
SELECT p.seq FROM daybreak.delayed p WHERE p.seq = ANY (%b::bigint[]) FOR UPDATE SKIP LOCKED

-- name: lock_flights
-- As `lock_names`, but for this schema alone: `lock_free_flights` tells whether another transaction has one.
SELECT pg_advisory_xact_lock(%b::integer, a.h)
FROM (SELECT DISTINCT hashtext('daybreak.' || n) AS h FROM unnest(%b::text[]) n ORDER BY 1) a

-- name: lock_free_flights
-- Locks those that no other transaction has locked, and returns them. Names whose hashes are equal share a lock.
SELECT n.name FROM unnest(%b::text[]) AS n(name) JOIN (
    SELECT h.h, pg_try_advisory_xact_lock(%b::integer, h.h) AS is_locked
    FROM (SELECT DISTINCT hashtext('daybreak.' || n) AS h FROM unnest(%b::text[]) n OFFSET 0) h OFFSET 0) l
ON l.h = hashtext('daybreak.' || n.name)
WHERE l.is_locked

-- name: lock_free_held
SELECT p.seq FROM daybreak.held p WHERE p.seq = ANY (%b::bigint[]) FOR UPDATE SKIP LOCKED

-- name: lock_free_ready
SELECT p.seq FROM daybreak.job j
JOIN daybreak.ready p ON p.lane = j.lane AND p.band = j.band AND p.ord = j.ord AND p.seq = j.seq
WHERE j.seq = ANY (%b::bigint[]) FOR UPDATE OF p SKIP LOCKED

-- name: next_flights
SELECT nextval('daybreak.flight_number') FROM generate_series(1, %b::integer)

-- name: put_flights
INSERT INTO daybreak.flight AS f (number, flight, task, version, created, used, leader, landing, is_known, job, parts, size,
                                  ran, until, hits, refs)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::text[], %b::integer[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::boolean[], %b::boolean[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::bigint[])
ON CONFLICT (number) DO UPDATE SET
    flight = excluded.flight, created = excluded.created, used = excluded.used, leader = excluded.leader,
    landing = excluded.landing, is_known = excluded.is_known, job = excluded.job, parts = excluded.parts,
    size = excluded.size, ran = excluded.ran, until = excluded.until, hits = excluded.hits, refs = excluded.refs

-- name: read_room
SELECT r.entries, r.size FROM daybreak.room r WHERE r.task = %b::text
