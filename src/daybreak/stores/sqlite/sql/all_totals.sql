SELECT l.queue, l.task, l.version, t.priority, t.totals
FROM tally t JOIN lane l ON l.id = t.lane
WHERE t.state = 'totals' AND (?1 IS NULL OR l.queue = ?1)
