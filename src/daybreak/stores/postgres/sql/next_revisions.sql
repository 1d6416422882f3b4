SELECT nextval('daybreak.revision') FROM generate_series(1, %b::integer)
