UPDATE daybreak.lease l SET fence = %b::integer, n = %b::integer, worker = %b::text, until = %b::bigint, term = %b::bigint,
    call = NULL, reaped = true, history = %b::text
WHERE l.seq = %b::bigint
