SELECT name, revision, value FROM record WHERE kind = ? AND (?2 IS NULL OR name = ?2) ORDER BY name
