SELECT l.queue, l.task, l.version, t.priority, t.state, sum(t.n)::bigint
FROM daybreak.tally t JOIN daybreak.lane l ON l.id = t.lane
GROUP BY l.queue, l.task, l.version, t.priority, t.state HAVING sum(t.n) <> 0
