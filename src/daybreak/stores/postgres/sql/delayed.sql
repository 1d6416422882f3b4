-- Jobs that wait for an instant, and jobs that expire at one.

-- name: delete_delayed
DELETE FROM daybreak.delayed p WHERE p.seq = ANY (%b::bigint[])

-- name: due_jobs
SELECT d.seq FROM daybreak.delayed d WHERE d.clock = %b::smallint AND d.due <= %b::bigint ORDER BY d.due, d.seq LIMIT %b::bigint
FOR UPDATE SKIP LOCKED

-- name: forget_expiry
UPDATE daybreak.job j SET expires = NULL WHERE j.seq = ANY (%b::bigint[])

-- name: insert_delayed
INSERT INTO daybreak.delayed (seq, clock, due, attempt, fence, n, started, progress, carry, note, message, history)
SELECT * FROM unnest(%b::bigint[], %b::smallint[], %b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bigint[],
    %b::double precision[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[])

-- name: lock_delayed
SELECT p.seq FROM daybreak.delayed p WHERE p.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE

-- name: overdue_jobs
SELECT j.seq FROM daybreak.job j WHERE j.expires <= %b::bigint ORDER BY j.expires, j.seq LIMIT %b::bigint
