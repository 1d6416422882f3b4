-- Those that were added with a tally stand there until they are folded.
SELECT l.queue, l.task, l.version, t.priority, t.what, sum(t.n)::bigint, sum(t.took)::bigint,
       max(ARRAY[t.latest, t.ran]) FILTER (WHERE t.latest IS NOT NULL), sum(t.firsts)::bigint, sum(t.waited)::bigint,
       max(t.attempts), sum(t.batches)::bigint
FROM (SELECT lane, priority, what, n, took, latest, ran, firsts, waited, attempts, batches FROM daybreak.total
      UNION ALL
      SELECT lane, priority, what, n, took, latest, ran, firsts, waited, attempts, batches FROM daybreak.tally
      WHERE what IS NOT NULL) t
JOIN daybreak.lane l ON l.id = t.lane
WHERE l.queue = coalesce(%b::text, l.queue)
GROUP BY l.queue, l.task, l.version, t.priority, t.what
