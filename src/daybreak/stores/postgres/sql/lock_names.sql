-- Who looks whether a name is taken and then takes it must be alone with it; names are locked in one order.
SELECT pg_advisory_xact_lock(%b::integer, hashtext(a.name))
FROM (SELECT DISTINCT hashtext(n) AS h, min(n) AS name FROM unnest(%b::text[]) n GROUP BY hashtext(n) ORDER BY 1) a
