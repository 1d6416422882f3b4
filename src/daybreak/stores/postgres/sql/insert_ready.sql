INSERT INTO daybreak.ready (lane, band, priority, ord, seq, expires, attempt, fence, n, started, progress, carry, note,
                            message, history, needs)
SELECT * FROM unnest(%b::integer[], %b::smallint[], %b::smallint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::integer[],
    %b::integer[], %b::integer[], %b::bigint[], %b::double precision[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[],
    %b::text[])
