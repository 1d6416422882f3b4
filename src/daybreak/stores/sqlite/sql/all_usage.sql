SELECT known.name, coalesce(g.used, 0), (SELECT count(*) FROM held WHERE cause = known.name), coalesce(g.shut_until, 0)
FROM (
    SELECT name FROM record WHERE kind = 'resource'
    UNION SELECT name FROM gauge WHERE used <> 0 OR shut_until <> 0
    UNION SELECT DISTINCT cause FROM held WHERE cause IS NOT NULL
) AS known LEFT JOIN gauge g ON g.name = known.name
WHERE ?1 IS NULL OR known.name = ?1
ORDER BY known.name
