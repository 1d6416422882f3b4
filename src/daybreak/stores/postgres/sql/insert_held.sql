INSERT INTO daybreak.held (seq, state, cause, lane, band, ord, clock, due, attempt, fence, n, started, progress, carry, note,
                           message, history)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::text[], %b::integer[], %b::smallint[], %b::bigint[], %b::smallint[],
    %b::bigint[], %b::integer[], %b::integer[], %b::integer[], %b::bigint[], %b::double precision[], %b::bytea[], %b::bytea[],
    %b::bytea[], %b::text[])
