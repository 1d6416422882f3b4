INSERT INTO daybreak.total (lane, priority, what, n, took, latest, ran, firsts, waited, attempts, batches)
SELECT * FROM unnest(%b::integer[], %b::smallint[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[])
