-- Make one row of each cell of the tally. One at a time; whoever comes second leaves it to the first.
CREATE FUNCTION daybreak.fold_1() RETURNS integer
LANGUAGE plpgsql AS $body$
DECLARE
    folded integer := 0;
BEGIN
    IF pg_try_advisory_xact_lock(hashtext('daybreak.fold')) THEN
        WITH gone AS (DELETE FROM daybreak.tally t RETURNING t.lane, t.priority, t.state, t.n),
        sums AS (SELECT lane, priority, state, sum(n)::bigint AS n, count(*) AS rows FROM gone GROUP BY lane, priority, state),
        kept AS (INSERT INTO daybreak.tally (lane, priority, state, n)
                 SELECT lane, priority, state, n FROM sums WHERE n <> 0)
        SELECT coalesce(sum(rows), 0) INTO folded FROM sums;
    END IF;
    RETURN folded;
END
$body$;
