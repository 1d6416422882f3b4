-- Jobs that are blocked or suspended.

-- name: delete_held
DELETE FROM daybreak.held p WHERE p.seq = ANY (%b::bigint[])

-- name: insert_held
INSERT INTO daybreak.held (seq, state, cause, lane, band, ord, clock, due, attempt, fence, n, started, progress, carry, note,
                           message, history, batch)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::text[], %b::integer[], %b::smallint[], %b::bigint[], %b::smallint[],
    %b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bigint[], %b::double precision[], %b::bytea[], %b::bytea[],
    %b::bytea[], %b::text[], %b::text[])

-- name: lock_held
SELECT p.seq FROM daybreak.held p WHERE p.seq = ANY (%b::bigint[]) ORDER BY p.seq FOR UPDATE
