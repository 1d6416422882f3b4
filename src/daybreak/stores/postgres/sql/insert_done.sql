INSERT INTO daybreak.done (seq, state, reason, finished, purge_at, result, attempt, fence, n, started, progress, carry, note,
                           message, history)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::bytea[], %b::integer[],
    %b::integer[], %b::integer[], %b::bigint[], %b::double precision[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[])
