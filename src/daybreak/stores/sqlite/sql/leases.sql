-- Leases: inserted, extended, taken over, deleted.

-- name: request_lease_end
-- A request to cancel or suspend; the holder gets it with the reply to its next heartbeat.
UPDATE lease SET cancelling = ?, suspending = ?, n = ?, history = ? WHERE seq = ?

-- name: expire_leases
-- After a reboot all holders are dead: their leases expire at once.
UPDATE lease SET until = 0, term = 0

-- name: carry_lease
UPDATE lease SET carry = ? WHERE seq = ?

-- name: delete_lease
DELETE FROM lease WHERE seq = ?

-- name: extend_lease
UPDATE lease SET until = ?, term = ?, alone = coalesce(?, alone), ahead = coalesce(?, ahead) WHERE seq = ?

-- name: fence_of
-- The fence of a job without a lease. If it equals that of a settlement, that settlement was written before.
SELECT fence FROM done WHERE seq = ?1
UNION ALL SELECT fence FROM delayed WHERE seq = ?1
UNION ALL SELECT fence FROM held WHERE seq = ?1
UNION ALL SELECT r.fence FROM job j CROSS JOIN ready r ON r.lane = j.lane AND r.band = j.band AND r.ord = j.ord AND r.seq = j.seq
          WHERE j.seq = ?1

-- name: insert_lease
INSERT INTO lease (
    seq, lane, priority, uniq, attempt, fence, n, worker, until, term, started, call, carry, history, needs, ahead
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: lapsed_leases
SELECT seq FROM lease WHERE until <= ? AND term <= ? ORDER BY until, seq LIMIT ?

-- name: leases_of
-- The leases of a batch, given as a JSON list of seqs: one statement instead of one a job.
SELECT seq, lane, priority, uniq, fence, n, worker, started, suspending, cancelling, carry, history, needs
FROM lease WHERE seq IN (SELECT value FROM json_each(?))

-- name: leases_of_call
SELECT seq FROM lease WHERE worker = ? AND call = ? ORDER BY seq

-- name: load_lease
SELECT attempt, fence, n, carry, history, worker, until, term, started, call, reaped, alone, suspending, cancelling,
    ahead
FROM lease WHERE seq = ?

-- name: take_over_lease
UPDATE lease SET fence = ?, n = ?, worker = ?, until = ?, term = ?, call = NULL, reaped = 1, history = ? WHERE seq = ?
