INSERT INTO daybreak.lease (seq, lane, priority, uniq, attempt, fence, n, worker, until, term, started, call, carry, history,
                            needs, ahead)
SELECT * FROM unnest(%b::bigint[], %b::integer[], %b::smallint[], %b::text[], %b::integer[], %b::integer[], %b::integer[],
    %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::bytea[], %b::text[],
    %b::text[], %b::boolean[])
