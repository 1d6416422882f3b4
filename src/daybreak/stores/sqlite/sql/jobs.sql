-- The immutable part of a job.

-- name: delete_job
DELETE FROM job WHERE seq = ?

-- name: insert_job
INSERT INTO job (seq, id, lane, band, ord, priority, asked, created, arrived, expires, by, run, owner, key, uniq, options, extra, args)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: last_id
SELECT max(id) FROM job

-- name: last_seq
SELECT max(coalesce((SELECT max(seq) FROM job), 0), coalesce((SELECT value FROM meta WHERE name = 'seq'), 0))

-- name: latest_time
-- The latest steady time that the file contains.
SELECT max(
    coalesce((SELECT arrived FROM job ORDER BY seq DESC LIMIT 1), 0),
    coalesce((SELECT at FROM feed ORDER BY pos DESC LIMIT 1), 0),
    coalesce((SELECT value FROM meta WHERE name = 'steady'), 0)
)

-- name: load_leased
-- The running jobs of a batch, given as a JSON list of seqs: one statement instead of one a job.
SELECT j.seq, j.id, j.lane, j.band, j.ord, j.priority, j.created, j.arrived, j.expires, j.uniq, j.options, j.extra,
       l.attempt, l.fence, l.n, l.carry, l.history,
       l.worker, l.until, l.term, l.started, l.call, l.reaped, l.alone, l.ahead, l.suspending, l.cancelling, l.batch_group,
       l.elements
FROM json_each(?) AS wanted CROSS JOIN lease l ON l.seq = wanted.value CROSS JOIN job j ON j.seq = l.seq

-- name: load_others
-- The jobs of a batch that are not running. A job that is in no other table is in `ready`, which has no index by seq.
SELECT j.seq, j.id, j.lane, j.band, j.ord, j.priority, j.created, j.arrived, j.expires, j.uniq, j.options, j.extra,
       coalesce(d.attempt, h.attempt, t.attempt, r.attempt), coalesce(d.fence, h.fence, t.fence, r.fence),
       coalesce(d.n, h.n, t.n, r.n), coalesce(d.carry, h.carry, t.carry, r.carry),
       coalesce(d.history, h.history, t.history, r.history),
       coalesce(d.state, h.state, iif(t.seq IS NULL, 'queued', 'scheduled')),
       coalesce(h.clock, t.clock), coalesce(h.due, t.due), h.cause,
       d.reason, d.started, d.finished, d.purge_at, coalesce(d.result, f.result), d.entry
FROM json_each(?) AS wanted CROSS JOIN job j ON j.seq = wanted.value
LEFT JOIN done d ON d.seq = j.seq LEFT JOIN result f ON f.number = d.entry LEFT JOIN held h ON h.seq = j.seq LEFT JOIN delayed t ON t.seq = j.seq
LEFT JOIN ready r ON r.lane = j.lane AND r.band = j.band AND r.ord = j.ord AND r.seq = j.seq

-- name: load_spec
SELECT asked, by, run, owner, key, extra, args FROM job WHERE seq = ?

-- name: update_job
UPDATE job SET band = ?, ord = ?, priority = ?, expires = ? WHERE seq = ?

-- name: seq_of_id
SELECT seq FROM job WHERE id = ?
