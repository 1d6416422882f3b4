-- Leases: inserted, extended, taken over, deleted.

-- name: expire_leases
-- After a reboot all holders on this machine are dead: their leases expire at once, but for those given as a JSON list of
-- seqs.
UPDATE lease SET until = 0, term = 0 WHERE seq NOT IN (SELECT value FROM json_each(?))

-- name: lease_carries
SELECT seq, carry FROM lease WHERE carry IS NOT NULL

-- name: carry_lease
UPDATE lease SET carry = ? WHERE seq = ?

-- name: delete_lease
DELETE FROM lease WHERE seq = ?

-- name: extend_lease
UPDATE lease SET until = ?, term = ?, alone = coalesce(?, alone), ahead = coalesce(?, ahead) WHERE seq = ?

-- name: insert_lease
INSERT INTO lease (
    seq, lane, priority, uniq, attempt, fence, n, worker, until, term, started, call, reaped, suspending, cancelling,
    carry, history, alone, needs, ahead, batch_group, elements
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: lapsed_leases
SELECT seq FROM lease WHERE until <= ? AND term <= ? ORDER BY until, seq LIMIT ?

-- name: held_leases
-- The leases of heartbeats, given as a JSON list of seqs.
SELECT l.seq, j.id, l.fence, l.n, l.worker, l.cancelling, l.suspending, l.carry
FROM json_each(?) AS wanted CROSS JOIN lease l ON l.seq = wanted.value CROSS JOIN job j ON j.seq = l.seq

-- name: plain_leases
-- What completing a job needs, of a batch given as a JSON list of seqs.
SELECT l.seq, l.lane, l.priority, l.uniq, l.fence, l.n, l.started, l.cancelling, l.carry, l.history, l.needs
FROM json_each(?) AS wanted CROSS JOIN lease l ON l.seq = wanted.value
WHERE l.batch_group IS NULL

-- name: leases_of_group
SELECT seq FROM lease WHERE batch_group = ? ORDER BY seq

-- name: leases_of_call
SELECT seq FROM lease WHERE worker = ? AND call = ? ORDER BY seq
