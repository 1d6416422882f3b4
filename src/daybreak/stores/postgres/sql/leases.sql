-- Leases: start, extend, take over, end.

-- name: delete_lease
DELETE FROM daybreak.lease p WHERE p.seq = ANY (%b::bigint[])

-- name: extend_lease
UPDATE daybreak.lease l SET until = a.until, term = a.term, alone = coalesce(a.alone, l.alone), ahead = coalesce(a.ahead, l.ahead),
    progress = coalesce(a.progress, l.progress), carry = CASE WHEN a.carries THEN a.carry ELSE l.carry END,
    message = CASE WHEN a.progress IS NULL THEN l.message ELSE a.message END
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::boolean[], %b::boolean[], %b::double precision[], %b::bytea[], %b::boolean[],
            %b::bytea[]) AS a(seq, until, term, alone, ahead, progress, message, carries, carry)
WHERE l.seq = a.seq

-- name: insert_lease
INSERT INTO daybreak.lease (seq, lane, priority, uniq, flight, attempt, fence, n, worker, until, term, started, call, carry,
                            history, needs, ahead, batch_group, elements)
SELECT * FROM unnest(%b::bigint[], %b::integer[], %b::smallint[], %b::text[], %b::text[], %b::integer[], %b::integer[], %b::integer[],
    %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::bytea[], %b::text[],
    %b::text[], %b::boolean[], %b::bigint[], %b::integer[])

-- name: lapsed_leases
-- Skips leases that another reaper is taking over at this moment.
SELECT l.seq FROM daybreak.lease l WHERE l.until <= %b::bigint AND l.term <= %b::bigint ORDER BY l.until, l.seq LIMIT %b::bigint
FOR UPDATE SKIP LOCKED

-- name: leases_of_group
SELECT l.seq FROM daybreak.lease l WHERE l.batch_group = %b::bigint ORDER BY l.seq

-- name: leases_of_call
SELECT l.seq FROM daybreak.lease l WHERE l.worker = %b::text AND l.call = %b::text ORDER BY l.seq

-- name: lock_beats
-- The leases to be extended, in the order in which all transactions lock leases.
SELECT l.seq, l.fence, l.n, l.worker, l.suspending, l.cancelling IS NOT NULL, l.carry, j.id
FROM daybreak.lease l CROSS JOIN LATERAL (SELECT j.id FROM daybreak.job j WHERE j.seq = l.seq OFFSET 0) j
WHERE l.seq = ANY (%b::bigint[]) ORDER BY l.seq FOR UPDATE OF l

-- name: lock_lease
SELECT p.seq FROM daybreak.lease p WHERE p.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE

-- name: may_reap
SELECT t.now, EXISTS (SELECT 1 FROM daybreak.lease l WHERE l.until <= t.now OR l.until > t.now + l.term)
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %b::bigint AS now) t

-- name: update_leases
UPDATE daybreak.lease l SET attempt = a.attempt, fence = a.fence, n = a.n, worker = a.worker, until = a.until, term = a.term,
    started = a.started, call = a.call, carry = a.carry, history = a.history, progress = a.progress, message = a.message,
    reaped = a.reaped, alone = a.alone, ahead = a.ahead, suspending = a.suspending, cancelling = a.cancelling
FROM unnest(%b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[],
            %b::text[], %b::bytea[], %b::text[], %b::double precision[], %b::bytea[], %b::boolean[], %b::boolean[], %b::boolean[],
            %b::boolean[], %b::bytea[])
    AS a(seq, attempt, fence, n, worker, until, term, started, call, carry, history, progress, message, reaped, alone, ahead,
         suspending, cancelling)
WHERE l.seq = a.seq
