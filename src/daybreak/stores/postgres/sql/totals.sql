-- Counts of jobs by state, and counters of what has happened.

-- name: add_tally
INSERT INTO daybreak.tally (lane, priority, state, n) SELECT * FROM unnest(%b::integer[], %b::smallint[], %b::text[], %b::bigint[])

-- name: add_total
INSERT INTO daybreak.total (lane, priority, what, n, took, latest, ran, firsts, waited, attempts, batches)
SELECT * FROM unnest(%b::integer[], %b::smallint[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[])

-- name: all_tallies
SELECT l.queue, l.task, l.version, t.priority, t.state, sum(t.n)::bigint
FROM daybreak.tally t JOIN daybreak.lane l ON l.id = t.lane
GROUP BY l.queue, l.task, l.version, t.priority, t.state HAVING sum(t.n) <> 0

-- name: all_totals
-- Totals that were added together with a tally are in that table until they are folded.
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

-- name: tallied
SELECT l.queue, coalesce(sum(t.n), 0)::bigint FROM daybreak.lane l JOIN daybreak.tally t ON t.lane = l.id
WHERE l.queue = ANY (%b::text[]) AND t.state = ANY (%b::text[]) GROUP BY l.queue
