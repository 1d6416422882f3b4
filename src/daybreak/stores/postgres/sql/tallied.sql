SELECT l.queue, coalesce(sum(t.n), 0)::bigint FROM daybreak.lane l JOIN daybreak.tally t ON t.lane = l.id
WHERE l.queue = ANY (%b::text[]) AND t.state = ANY (%b::text[]) GROUP BY l.queue
