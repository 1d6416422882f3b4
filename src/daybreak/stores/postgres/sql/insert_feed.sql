INSERT INTO daybreak.feed (at, ids, runs, lines) VALUES (%b::bigint, %b::text, %b::integer[], %b::text)
