SELECT r.revision, r.value FROM daybreak.record r WHERE r.kind = %b::text AND r.name = %b::text FOR UPDATE
