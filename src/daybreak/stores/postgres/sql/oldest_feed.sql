SELECT f.pos, f.at, f.xid::text::bigint, (SELECT sum(r) FROM unnest(f.runs) r)::bigint FROM daybreak.feed f ORDER BY f.pos LIMIT %b::bigint
