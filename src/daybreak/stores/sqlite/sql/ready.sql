-- Queued jobs in rank order, and their lanes.

-- name: all_lanes
SELECT id, queue, task, version FROM lane

-- name: claim_job
-- One job of a lane by its id, wherever it stands, with the columns of claim_lane. Nothing if it is not queued.
SELECT r.band, r.ord, r.seq, r.attempt, r.fence, r.n, r.carry, r.history,
       j.id, j.lane, j.priority, j.created, j.arrived, j.expires, j.uniq, j.options,
       j.asked, j.by, j.run, j.owner, j.key, j.extra, j.args
FROM job j CROSS JOIN ready r ON r.lane = j.lane AND r.band = j.band AND r.ord = j.ord AND r.seq = j.seq
WHERE j.id = ? AND j.lane = ?

-- name: claim_lane
-- The first jobs of one lane in rank order, with all columns that a lease needs.
-- CROSS JOIN makes SQLite read `ready` first, by its primary key: the planner may not change the order.
SELECT r.band, r.ord, r.seq, r.attempt, r.fence, r.n, r.carry, r.history,
       j.id, j.lane, j.priority, j.created, j.arrived, j.expires, j.uniq, j.options,
       j.asked, j.by, j.run, j.owner, j.key, j.extra, j.args
FROM ready r CROSS JOIN job j ON j.seq = r.seq
WHERE r.lane = ?
ORDER BY r.band, r.ord, r.seq
LIMIT ?

-- name: company_queued
-- The queued jobs of a lane that have a batch key, in rank order.
SELECT r.band, r.ord, r.seq, j.priority, j.expires, j.options, r.carry
FROM ready r INDEXED BY ready_batch CROSS JOIN job j ON j.seq = r.seq
WHERE r.lane = ? AND r.batch = ?
ORDER BY r.band, r.ord, r.seq
LIMIT ?

-- name: company_blocked
-- The same for those that are blocked on a resource: of other jobs, `batch` is NULL.
SELECT h.band, h.ord, h.seq, j.priority, j.expires, j.options, h.carry
FROM held h INDEXED BY held_batch CROSS JOIN job j ON j.seq = h.seq
WHERE h.lane = ? AND h.batch = ?
ORDER BY h.band, h.ord, h.seq
LIMIT ?

-- name: delete_ready
DELETE FROM ready WHERE lane = ? AND band = ? AND ord = ? AND seq = ?

-- name: insert_lane
INSERT INTO lane (queue, task, version) VALUES (?, ?, ?) RETURNING id

-- name: insert_ready
INSERT INTO ready (lane, band, ord, seq, attempt, fence, n, carry, history, batch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: take_from_lane
-- The leased jobs are a prefix of the lane, so one range delete removes the whole batch.
DELETE FROM ready WHERE lane = ? AND (band, ord, seq) <= (?, ?, ?)

-- name: next_due
SELECT
    (SELECT min(due) FROM delayed WHERE clock = 0),
    (SELECT min(due) FROM delayed WHERE clock = 1),
    (SELECT min(look) FROM gauge WHERE look IS NOT NULL),
    EXISTS (SELECT 1 FROM flight WHERE landing)
