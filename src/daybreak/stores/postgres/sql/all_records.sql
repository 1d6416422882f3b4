SELECT r.name, r.revision, r.value FROM daybreak.record r WHERE r.kind = %b::text AND (%b::text IS NULL OR r.name = %b::text) ORDER BY r.name
