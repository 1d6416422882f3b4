-- Queued jobs in rank order, and their lanes.

-- name: add_lanes
-- The numbers of these lanes; those that do not exist are added. One that another transaction adds meanwhile is missing.
WITH wanted AS (
    SELECT w.queue, w.task, w.version FROM unnest(%b::text[], %b::text[], %b::integer[]) w(queue, task, version)
), added AS (
    INSERT INTO daybreak.lane AS l (queue, task, version) SELECT w.queue, w.task, w.version FROM wanted w
    WHERE NOT EXISTS (SELECT 1 FROM daybreak.lane o WHERE o.queue = w.queue AND o.task = w.task AND o.version = w.version)
    ON CONFLICT DO NOTHING RETURNING l.id, l.queue, l.task, l.version
)
SELECT a.id, a.queue, a.task, a.version FROM added a
UNION ALL
SELECT l.id, l.queue, l.task, l.version
FROM wanted w JOIN daybreak.lane l ON l.queue = w.queue AND l.task = w.task AND l.version = w.version

-- name: all_lanes
SELECT l.id, l.queue, l.task, l.version FROM daybreak.lane l

-- name: newest_lanes
-- For a process that opens the store: most likely it needs some of them, and it loads the others when it needs them.
SELECT l.id, l.queue, l.task, l.version FROM daybreak.lane l ORDER BY l.id DESC LIMIT 500

-- name: claim_job
-- One job by its id, wherever it stands in its lane, with the columns of claim_lane. Nothing if it is not queued.
SELECT r.lane, r.band, r.ord, r.seq, r.priority, r.expires, r.attempt, r.fence, r.needs,
       CASE WHEN r.needs IS NOT NULL OR r.batch IS NOT NULL THEN r.carry END AS carry, r.batch
FROM daybreak.job j
JOIN daybreak.ready r ON r.lane = j.lane AND r.band = j.band AND r.ord = j.ord AND r.seq = j.seq
WHERE j.lane = ANY (%b::integer[]) AND r.seq <> ALL (%b::bigint[]) AND j.id = %b::text

-- name: claim_lane
-- The first jobs of some lanes, in rank order. Locks nothing and reads only what the rank needs: see take_heads.
SELECT r.lane, r.band, r.ord, r.seq, r.priority, r.expires, r.attempt, r.fence, r.needs, r.carry, r.batch
FROM unnest(%b::integer[]) AS a(lane)
CROSS JOIN LATERAL (
    SELECT r.lane, r.band, r.ord, r.seq, r.priority, r.expires, r.attempt, r.fence, r.needs,
           CASE WHEN r.needs IS NOT NULL OR r.batch IS NOT NULL THEN r.carry END AS carry, r.batch
    FROM daybreak.ready r
    WHERE r.lane = a.lane AND r.seq <> ALL (%b::bigint[]) ORDER BY r.band, r.ord, r.seq LIMIT %b::bigint) r
ORDER BY r.lane, r.band, r.ord, r.seq

-- name: company
-- The jobs of a lane that have a batch key, in rank order: queued, with the columns of claim_lane, or blocked on a resource.
-- Locks nothing.
(SELECT r.lane, r.band, r.ord, r.seq, r.priority, r.expires, r.attempt, r.fence, r.needs, r.carry, r.batch, NULL::bytea AS options,
        true AS is_queued
 FROM daybreak.ready r WHERE r.lane = %(lane)b AND r.batch = %(batch)b AND r.seq <> ALL (%(seen)b::bigint[])
 ORDER BY r.band, r.ord, r.seq LIMIT %(limit)b)
UNION ALL
(SELECT h.lane, h.band, h.ord, h.seq, j.priority, j.expires, h.attempt, h.fence, NULL, h.carry, h.batch, j.options, false
 FROM (SELECT * FROM daybreak.held h WHERE h.lane = %(lane)b AND h.batch = %(batch)b AND h.seq <> ALL (%(seen)b::bigint[])
       ORDER BY h.band, h.ord, h.seq LIMIT %(limit)b) h
 CROSS JOIN LATERAL (SELECT j.priority, j.expires, j.options FROM daybreak.job j WHERE j.seq = h.seq OFFSET 0) j)
ORDER BY band, ord, seq LIMIT %(limit)b

-- name: delete_ready
DELETE FROM daybreak.ready p USING unnest(%b::integer[], %b::smallint[], %b::bigint[], %b::bigint[]) AS a(lane, band, ord, seq)
WHERE p.lane = a.lane AND p.band = a.band AND p.ord = a.ord AND p.seq = a.seq

-- name: insert_lane
INSERT INTO daybreak.lane (queue, task, version) VALUES (%b::text, %b::text, %b::integer) ON CONFLICT DO NOTHING

-- name: insert_ready
INSERT INTO daybreak.ready (lane, band, priority, ord, seq, expires, attempt, fence, n, started, progress, carry, note,
                            message, history, needs, batch, special)
SELECT * FROM unnest(%b::integer[], %b::smallint[], %b::smallint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::integer[],
    %b::integer[], %b::integer[], %b::bigint[], %b::double precision[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[],
    %b::text[], %b::text[], %b::boolean[])

-- name: lock_claims
-- Blocks all claims until the end of the transaction: a claim does not lock the row of a queue that has no limit.
SELECT pg_advisory_xact_lock(4473428, hashtext('daybreak.ready'))

-- name: lock_ready
SELECT p.seq FROM daybreak.job j
JOIN daybreak.ready p ON p.lane = j.lane AND p.band = j.band AND p.ord = j.ord AND p.seq = j.seq
WHERE j.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE OF p

-- name: lock_ready_free
-- Locks the chosen jobs that no other transaction holds; returns all that a lease carries.
SELECT l.seq, l.attempt, l.fence, l.n, l.carry, l.history, j.id, j.asked, j.created, j.by, j.run, j.owner, j.key, j.uniq,
       j.options, j.extra, j.args, j.arrived, l.started, l.progress, l.note, l.message, j.flight
FROM unnest(%b::integer[], %b::smallint[], %b::bigint[], %b::bigint[]) AS a(lane, band, ord, seq)
CROSS JOIN LATERAL (
    SELECT p.seq, p.attempt, p.fence, p.n, p.carry, p.history, p.started, p.progress, p.note, p.message FROM daybreak.ready p
    WHERE p.lane = a.lane AND p.band = a.band AND p.ord = a.ord AND p.seq = a.seq FOR UPDATE SKIP LOCKED) l
CROSS JOIN LATERAL (SELECT * FROM daybreak.job j WHERE j.seq = l.seq OFFSET 0) j

-- name: next_due
SELECT (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 0),
       (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 1),
       (SELECT min(g.look) FROM daybreak.gauge g WHERE g.look IS NOT NULL),
       (SELECT min(f.number) FROM daybreak.flight f WHERE f.landing) IS NOT NULL

-- name: share_claims
-- Shared by all claims; excludes a change of queue settings.
SELECT pg_advisory_xact_lock_shared(4473428, hashtext('daybreak.ready'))
