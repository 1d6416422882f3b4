-- The immutable part of a job.

-- name: delete_jobs
DELETE FROM daybreak.job j WHERE j.seq = ANY (%b::bigint[])

-- name: insert_job
INSERT INTO daybreak.job (seq, id, lane, band, ord, priority, asked, created, arrived, expires, by, run, owner, key, uniq,
                          flight, options, extra, args)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::integer[], %b::smallint[], %b::bigint[], %b::smallint[], %b::smallint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
    %b::bytea[], %b::bytea[], %b::bytea[])

-- name: load_jobs
-- Jobs in any state. In one snapshot a job is in exactly one of the tables lease, ready, done, delayed and held.
-- (SELECT ...) hides how long the array is. Otherwise this is planned anew for every call, which takes longer than to read a
-- job: a plan for few jobs always looks cheaper than one for any number.
SELECT j.seq, j.id, j.lane, j.band, j.ord, j.priority, j.asked, j.created, j.arrived, j.expires, j.by, j.run, j.owner,
       j.key, j.uniq, j.options, j.extra, j.args,
       CASE WHEN l.seq IS NOT NULL THEN 'running' WHEN r.seq IS NOT NULL THEN 'queued'
            WHEN w.seq IS NOT NULL THEN 'scheduled' ELSE coalesce(d.state, h.state) END,
       coalesce(l.attempt, r.attempt, d.attempt, w.attempt, h.attempt),
       coalesce(l.fence, r.fence, d.fence, w.fence, h.fence),
       coalesce(l.n, r.n, d.n, w.n, h.n),
       coalesce(l.started, r.started, d.started, w.started, h.started),
       coalesce(l.progress, r.progress, d.progress, w.progress, h.progress),
       coalesce(l.carry, r.carry, d.carry, w.carry, h.carry),
       coalesce(r.note, d.note, w.note, h.note),
       coalesce(l.message, r.message, d.message, w.message, h.message),
       coalesce(l.history, r.history, d.history, w.history, h.history),
       coalesce(w.clock, h.clock), coalesce(w.due, h.due),
       l.worker, l.until, l.term, l.call, l.reaped, l.alone, l.suspending, l.cancelling,
       d.reason, d.finished, d.purge_at, coalesce(d.result, f.result), h.cause, l.ahead, l.batch_group, l.elements, j.flight,
       d.entry
FROM unnest((SELECT %b::bigint[])) AS asked(seq)
CROSS JOIN LATERAL (SELECT * FROM daybreak.job j WHERE j.seq = asked.seq OFFSET 0) j
LEFT JOIN LATERAL (SELECT * FROM daybreak.lease l WHERE l.seq = j.seq OFFSET 0) l ON true
LEFT JOIN LATERAL (
    SELECT * FROM daybreak.ready r WHERE r.lane = j.lane AND r.band = j.band AND r.ord = j.ord AND r.seq = j.seq OFFSET 0) r ON true
LEFT JOIN LATERAL (SELECT * FROM daybreak.done d WHERE d.seq = j.seq OFFSET 0) d ON true
LEFT JOIN LATERAL (SELECT * FROM daybreak.delayed w WHERE w.seq = j.seq OFFSET 0) w ON true
LEFT JOIN LATERAL (SELECT * FROM daybreak.held h WHERE h.seq = j.seq OFFSET 0) h ON true
LEFT JOIN LATERAL (SELECT x.result FROM daybreak.result x WHERE x.number = d.entry OFFSET 0) f ON true

-- name: next_seqs
SELECT nextval('daybreak.seq') FROM generate_series(1, %b::integer)

-- name: rerank_jobs
UPDATE daybreak.job j SET band = a.band, ord = a.ord, priority = a.priority
FROM unnest(%b::bigint[], %b::smallint[], %b::bigint[], %b::smallint[]) AS a(seq, band, ord, priority) WHERE j.seq = a.seq

-- name: seqs_of_ids
-- (SELECT ...): as in load_jobs.
SELECT j.id, j.seq FROM daybreak.job j WHERE j.id = ANY ((SELECT %b::text[])::text[])
