SELECT * FROM daybreak.exchange_2(%b::bigint, %b::boolean, %b::bigint, %b::bigint, %b::bigint[], %b::integer[], %b::integer[], %b::bigint[], %b::bytea[], %b::bytea[],
    %b::bytea[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::text, %b::text, %b::text[], %b::bigint[], %b::text[], %b::integer[], %b::integer,
    %b::bigint, %b::text, %b::integer)
