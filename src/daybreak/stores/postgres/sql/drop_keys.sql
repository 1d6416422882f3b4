UPDATE daybreak.idem i SET dropped = %b::bigint WHERE i.id = %b::text
