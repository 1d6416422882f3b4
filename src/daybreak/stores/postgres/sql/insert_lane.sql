INSERT INTO daybreak.lane (queue, task, version) VALUES (%b::text, %b::text, %b::integer) ON CONFLICT DO NOTHING
