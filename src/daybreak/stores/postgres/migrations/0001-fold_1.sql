-- Fold the rows of `tally` and `total` into one row per cell. Only one transaction at a time; a second one returns at once.
-- Many totals seldom change: a cell that is one row already is not touched.
CREATE FUNCTION daybreak.fold_1() RETURNS integer
LANGUAGE plpgsql AS $body$
DECLARE
    folded integer := 0;
BEGIN
    IF pg_try_advisory_xact_lock(hashtext('daybreak.fold')) THEN
        WITH gone AS (DELETE FROM daybreak.tally t RETURNING t.*),
        sums AS (SELECT lane, priority, state, sum(n)::bigint AS n, count(*) AS rows FROM gone GROUP BY lane, priority, state),
        kept AS (INSERT INTO daybreak.tally (lane, priority, state, n)
                 SELECT lane, priority, state, n FROM sums WHERE n <> 0),
        grown AS (SELECT lane, priority, what FROM gone WHERE what IS NOT NULL
                  UNION
                  SELECT t.lane, t.priority, t.what FROM daybreak.total t GROUP BY 1, 2, 3 HAVING count(*) > 1),
        old AS (DELETE FROM daybreak.total t USING grown g
                WHERE t.lane = g.lane AND t.priority = g.priority AND t.what = g.what RETURNING t.*),
        totals AS (INSERT INTO daybreak.total (lane, priority, what, n, took, latest, ran, firsts, waited, attempts, batches)
                   SELECT lane, priority, what, sum(n), sum(took), (max(last))[1], (max(last))[2], sum(firsts), sum(waited),
                          max(attempts), sum(batches)
                   FROM (SELECT lane, priority, what, n, took, CASE WHEN latest IS NOT NULL THEN ARRAY[latest, ran] END AS last,
                                firsts, waited, attempts, batches
                         FROM gone WHERE what IS NOT NULL
                         UNION ALL
                         SELECT lane, priority, what, n, took, CASE WHEN latest IS NOT NULL THEN ARRAY[latest, ran] END,
                                firsts, waited, attempts, batches
                         FROM old) a
                   GROUP BY lane, priority, what)
        SELECT coalesce(sum(rows), 0) INTO folded FROM sums;
    END IF;
    RETURN folded;
END
$body$;
