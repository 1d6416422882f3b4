-- Tell those who wait for one of these, ourselves apart. Sent after the commit it tells of.
SELECT pg_notify(%s, w.topic) FROM (
    SELECT DISTINCT n.topic FROM daybreak.waiting n
    WHERE n.topic = ANY (%b::text[]) AND n.who <> %s AND n.until > extract(epoch FROM clock_timestamp())) w
