SELECT nextval('daybreak.seq') FROM generate_series(1, %b::integer)
