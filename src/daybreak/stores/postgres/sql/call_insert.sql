SELECT i.at, i.seqs, NULL::text[]
FROM daybreak.insert_2(%b::bigint, %b::text[], %b::text[], %b::integer[], %b::smallint[], %b::integer[], %b::bigint[],
    %b::text[], %b::text[], %b::text[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[], %b::text[], %b::text[], %b::integer[],
    %b::text[], %b::bigint, %b::bigint) i
