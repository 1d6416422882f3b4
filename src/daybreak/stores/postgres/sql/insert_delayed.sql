INSERT INTO daybreak.delayed (seq, clock, due, attempt, fence, n, started, progress, carry, note, message, history)
SELECT * FROM unnest(%b::bigint[], %b::smallint[], %b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bigint[],
    %b::double precision[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[])
