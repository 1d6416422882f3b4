-- Registrations: which process waits for which topic.

-- name: notify
-- Notify the processes that wait for one of these topics, except the sender. Runs after the commit that changed them.
SELECT pg_notify(%s, w.topic) FROM (
    SELECT DISTINCT n.topic FROM daybreak.waiting n
    WHERE n.topic = ANY (%b::text[]) AND n.who <> %s AND n.until > extract(epoch FROM clock_timestamp())) w

-- name: register_topics
INSERT INTO daybreak.waiting (topic, who, until)
SELECT t.topic, %(who)s, extract(epoch FROM clock_timestamp())::bigint + %(keep)s FROM unnest(%(topics)b::text[]) t(topic)
ON CONFLICT (topic, who) DO UPDATE SET until = excluded.until

-- name: unregister_topics
DELETE FROM daybreak.waiting w WHERE (w.topic = ANY (%b::text[]) AND w.who = %s) OR w.until < extract(epoch FROM clock_timestamp())
