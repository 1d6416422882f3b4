-- The immutable part of a job.

-- name: delete_job
DELETE FROM job WHERE seq = ?

-- name: id_of
SELECT id FROM job WHERE seq = ?

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

-- name: load_job
SELECT seq, id, lane, band, ord, priority, asked, created, arrived, expires, by, run, owner, key, uniq, options, extra, args
FROM job WHERE seq = ?

-- name: rerank_job
UPDATE job SET band = ?, ord = ?, priority = ? WHERE seq = ?

-- name: seq_of_id
SELECT seq FROM job WHERE id = ?
