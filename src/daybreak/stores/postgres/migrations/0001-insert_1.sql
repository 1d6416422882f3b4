-- Insert plain jobs: new ids, no key, no unique name, no delay, queues without capacity and aging, resources without a limit
-- of waiting jobs. Returns their seqs in the order of the arguments; NULL if one of them is not plain: then nothing was
-- written.
-- p_told, p_runs and p_tails are the row of the feed: ids, lengths of runs, and ends of the lines. For p_offset and p_about
-- see exchange_1.
CREATE FUNCTION daybreak.insert_1(
    p_now bigint, p_queues text[], p_ids text[], p_lanes integer[], p_priorities smallint[],
    p_expires bigint[], p_by text[], p_runs_of text[], p_owners text[], p_options bytea[], p_extras bytea[],
    p_args bytea[], p_needs text[], p_resources text[], p_told text[], p_runs integer[], p_tails text[],
    p_offset bigint, p_about bigint, OUT at bigint, OUT seqs bigint[])
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE
    steady bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - p_offset);
    wall bigint := steady + p_offset;
BEGIN
    at := steady;
    IF abs(steady - p_about) > 5000000
       OR EXISTS (SELECT 1 FROM daybreak.queue q WHERE q.name = ANY (p_queues) AND (q.capacity IS NOT NULL OR q.aging))
       OR (p_resources IS NOT NULL AND EXISTS (
               SELECT 1 FROM daybreak.gauge g WHERE g.name = ANY (p_resources) AND g.max_waiting IS NOT NULL))
       -- Ids grow with time: mostly all new ids are greater than the greatest known one, and this comparison is enough.
       OR ((SELECT max(j.id) FROM daybreak.job j) >= (SELECT min(a.id COLLATE "C") FROM unnest(p_ids) a(id))
           AND EXISTS (SELECT 1 FROM unnest(p_ids) a(id) CROSS JOIN LATERAL (
                           SELECT 1 FROM daybreak.job j WHERE j.id = a.id OFFSET 0) known)) THEN
        RETURN;
    END IF;
    seqs := ARRAY(SELECT nextval('daybreak.seq') FROM generate_series(1, cardinality(p_ids)));
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(seqs, p_ids, p_lanes, p_priorities, p_expires, p_by, p_runs_of, p_owners, p_options,
                             p_extras, p_args, p_needs)
            AS t(seq, id, lane, priority, expires, by, run, owner, options, extra, args, needs)
    ), jobs AS (
        INSERT INTO daybreak.job (seq, created, arrived, ord, expires, lane, band, priority, asked, id, by, run, owner,
                                  options, extra, args)
        SELECT seq, wall, steady, 0, steady + expires, lane, priority, priority, priority, id, by, run, owner, options, extra,
               args
        FROM asked
    ), queued AS (
        INSERT INTO daybreak.ready (lane, band, priority, ord, seq, expires, attempt, fence, n, needs)
        SELECT lane, priority, priority, 0, seq, steady + expires, 0, 0, 1, needs FROM asked
    ), counted AS (
        INSERT INTO daybreak.tally (lane, priority, state, n, what)
        SELECT lane, priority, 'queued', count(*), 'submitted' FROM asked GROUP BY lane, priority
    )
    INSERT INTO daybreak.feed (at, ids, runs, lines)
    SELECT steady, array_to_string(p_told, chr(31)), p_runs, string_agg('{"n":1,"at":' || wall || t.tail, E'\n' ORDER BY t.o)
    FROM unnest(p_tails) WITH ORDINALITY t(tail, o);
END
$body$;
