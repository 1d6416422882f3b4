INSERT INTO daybreak.job (seq, id, lane, band, ord, priority, asked, created, arrived, expires, by, run, owner, key, uniq,
                          options, extra, args)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::integer[], %b::smallint[], %b::bigint[], %b::smallint[], %b::smallint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[],
    %b::bytea[], %b::bytea[])
