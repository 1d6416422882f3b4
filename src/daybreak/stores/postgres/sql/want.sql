INSERT INTO daybreak.waiting (topic, who, until)
SELECT t.topic, %(who)s, extract(epoch FROM clock_timestamp())::bigint + %(keep)s FROM unnest(%(topics)b::text[]) t(topic)
ON CONFLICT (topic, who) DO UPDATE SET until = excluded.until
