UPDATE daybreak.lease l SET cancelling = %b::bytea, suspending = %b::boolean, n = %b::integer, history = %b::text WHERE l.seq = %b::bigint
