-- Flights and known results.

-- name: add_room
INSERT INTO room (task, entries, size) VALUES (?1, ?2, ?3)
ON CONFLICT (task) DO UPDATE SET entries = entries + ?2, size = size + ?3

-- name: cached_flights
-- One page of usable results, most recently used first; of a task, or of all.
SELECT flight, task, version, job, parts, size, ran, hits, created, used, until, number
FROM flight
WHERE flight IS NOT NULL AND is_known AND (until IS NULL OR until > ?1) AND (?2 IS NULL OR task = ?2)
    AND (used, number) < (?3, ?4)
ORDER BY used DESC, number DESC LIMIT ?5

-- name: cached_flights_of_task
-- The same for one task, by its index.
SELECT flight, task, version, job, parts, size, ran, hits, created, used, until, number
FROM flight
WHERE flight IS NOT NULL AND is_known AND (until IS NULL OR until > ?1) AND task = ?2 AND (used, number) < (?3, ?4)
ORDER BY used DESC, number DESC LIMIT ?5

-- name: cached_flights_named
-- The same for flights that are given as a JSON list.
SELECT f.flight, f.task, f.version, f.job, f.parts, f.size, f.ran, f.hits, f.created, f.used, f.until, f.number
FROM json_each(?6) AS wanted CROSS JOIN flight f ON f.flight = wanted.value
WHERE f.is_known AND (f.until IS NULL OR f.until > ?1) AND (?2 IS NULL OR f.task = ?2) AND (f.used, f.number) < (?3, ?4)
ORDER BY f.used DESC, f.number DESC LIMIT ?5

-- name: cached_results
-- One page of known results with the results themselves, in the order of their creation.
SELECT f.flight, f.task, f.version, f.job, f.parts, f.size, f.ran, f.hits, f.created, f.used, f.until, f.number, r.result
FROM flight f LEFT JOIN result r ON r.number = f.number
WHERE f.flight IS NOT NULL AND f.is_known AND (?1 IS NULL OR f.task = ?1) AND f.number > ?2
    AND (?3 IS NULL OR f.flight IN (SELECT value FROM json_each(?3)))
ORDER BY f.number LIMIT ?4

-- name: delete_flight
DELETE FROM flight WHERE number = ?

-- name: delete_result
DELETE FROM result WHERE number = ?

-- name: insert_result
INSERT INTO result (number, result) VALUES (?, ?)

-- name: known_flights
SELECT flight FROM flight
WHERE flight IS NOT NULL AND is_known AND (?1 IS NULL OR task = ?1)
    AND (NOT landing OR until IS NULL OR until > ?2)
ORDER BY number LIMIT ?3

-- name: landing_flights
SELECT flight FROM flight WHERE landing ORDER BY number LIMIT ?

-- name: lapsed_flights
SELECT flight FROM flight WHERE flight IS NOT NULL AND until <= ? AND NOT landing ORDER BY until, number LIMIT ?

-- name: last_flight
SELECT coalesce(max(number), 0) FROM flight

-- name: least_used_flights
SELECT flight FROM flight
WHERE flight IS NOT NULL AND is_known AND task = ? AND NOT landing ORDER BY used, number LIMIT ?

-- name: load_entry
SELECT number, flight, task, version, created, used, leader, landing, is_known, job, parts, size, ran, until, hits, refs
FROM flight WHERE number = ?

-- name: load_flight
SELECT number, flight, task, version, created, used, leader, landing, is_known, job, parts, size, ran, until, hits, refs
FROM flight WHERE flight = ?

-- name: put_flight
INSERT INTO flight (
    number, flight, task, version, created, used, leader, landing, is_known, job, parts, size, ran, until, hits, refs
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET
    flight = excluded.flight, created = excluded.created, used = excluded.used, leader = excluded.leader,
    landing = excluded.landing, is_known = excluded.is_known, job = excluded.job, parts = excluded.parts,
    size = excluded.size, ran = excluded.ran, until = excluded.until, hits = excluded.hits, refs = excluded.refs

-- name: read_room
SELECT entries, size FROM room WHERE task = ?
