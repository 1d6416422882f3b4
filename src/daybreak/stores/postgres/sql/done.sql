-- Jobs in a final state.

-- name: delete_done
DELETE FROM daybreak.done p WHERE p.seq = ANY (%b::bigint[])

-- name: insert_done
INSERT INTO daybreak.done (seq, state, reason, finished, purge_at, result, attempt, fence, n, started, progress, carry, note,
                           message, history, entry)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::bytea[], %b::integer[],
    %b::integer[], %b::integer[], %b::bigint[], %b::double precision[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[],
    %b::bigint[])

-- name: lock_done
SELECT p.seq FROM daybreak.done p WHERE p.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE

-- name: stale_jobs
SELECT d.seq FROM daybreak.done d WHERE d.purge_at <= %b::bigint ORDER BY d.purge_at, d.seq LIMIT %b::bigint FOR UPDATE SKIP LOCKED
