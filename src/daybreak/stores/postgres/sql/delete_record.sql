DELETE FROM daybreak.record r WHERE r.kind = %b::text AND r.name = %b::text
