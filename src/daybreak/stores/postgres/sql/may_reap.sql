SELECT t.now, EXISTS (SELECT 1 FROM daybreak.lease l WHERE l.until <= t.now OR l.until > t.now + l.term)
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %b::bigint AS now) t
