UPDATE daybreak.idem i SET dropped = %b::bigint + coalesce(%b::bigint, i.at, %b::bigint) WHERE i.id = %b::text
