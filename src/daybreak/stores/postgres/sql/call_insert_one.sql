SELECT i.at, i.seq, i.told
FROM daybreak.insert_one_1(%b::bigint, %b::text, %b::text, %b::integer, %b::smallint, %b::integer, %b::bigint, %b::text,
    %b::text, %b::text, %b::bytea, %b::bytea, %b::bytea, %b::text, %b::text[], %b::text, %b::text, %b::text[], %b::text, %b::bigint, %b::bigint) i
