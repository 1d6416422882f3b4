SELECT name, coalesce(g.used, 0), coalesce(g.waiting, 0), coalesce(g.shut_until, 0)
FROM daybreak.gauge g FULL JOIN (SELECT r.name FROM daybreak.record r WHERE r.kind = 'resource') r USING (name)
WHERE (r.name IS NOT NULL OR g.used <> 0 OR g.waiting <> 0 OR g.shut_until <> 0) AND name = coalesce(%b::text, name)
ORDER BY name
