-- Insert one plain job: insert_1 for callers that submit one job at a time, in statements that are cheaper for one row.
-- `seq` is NULL if the job is not plain: then nothing was written. If p_channel is given, the commit itself notifies the
-- processes that wait for one of p_topics, except p_who; `told` are the topics of which it did. A process that registers at
-- this very moment may not be seen here: see wake.py. For p_offset and p_about see exchange_1.
CREATE FUNCTION daybreak.insert_one_1(
    p_now bigint, p_queue text, p_id text, p_lane integer, p_priority smallint, p_expires bigint, p_by text,
    p_run text, p_owner text, p_options bytea, p_extra bytea, p_args bytea, p_needs text, p_resources text[], p_tail text,
    p_channel text, p_topics text[], p_who text, p_offset bigint, p_about bigint, OUT at bigint, OUT seq bigint, OUT told text[])
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    steady bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - p_offset);
    wall bigint := steady + p_offset;
    new bigint;
BEGIN
    at := steady;
    IF abs(steady - p_about) > 5000000
       OR EXISTS (SELECT 1 FROM daybreak.queue q WHERE q.name = p_queue AND (q.capacity IS NOT NULL OR q.aging))
       OR (p_resources IS NOT NULL AND EXISTS (
               SELECT 1 FROM daybreak.gauge g WHERE g.name = ANY (p_resources) AND g.max_waiting IS NOT NULL))
       OR EXISTS (SELECT 1 FROM daybreak.job j WHERE j.id = p_id) THEN
        RETURN;
    END IF;
    new := nextval('daybreak.seq');
    INSERT INTO daybreak.job (seq, created, arrived, ord, expires, lane, band, priority, asked, id, by, run, owner, options,
                              extra, args)
    VALUES (new, wall, steady, 0, steady + p_expires, p_lane, p_priority, p_priority, p_priority, p_id, p_by, p_run, p_owner,
            p_options, p_extra, p_args);
    INSERT INTO daybreak.ready (lane, band, priority, ord, seq, expires, attempt, fence, n, needs)
    VALUES (p_lane, p_priority, p_priority, 0, new, steady + p_expires, 0, 0, 1, p_needs);
    INSERT INTO daybreak.tally (lane, priority, state, n, what) VALUES (p_lane, p_priority, 'queued', 1, 'submitted');
    INSERT INTO daybreak.feed (at, ids, runs, lines) VALUES (steady, p_id, '{1}', '{"n":1,"at":' || wall || p_tail);
    IF p_channel IS NOT NULL THEN
        told := ARRAY(SELECT DISTINCT w.topic FROM daybreak.waiting w
                      WHERE w.topic = ANY (p_topics) AND w.who <> p_who AND w.until > extract(epoch FROM clock_timestamp()));
        FOR i IN 1 .. cardinality(told) LOOP
            PERFORM pg_notify(p_channel, told[i]);
        END LOOP;
    END IF;
    seq := new;
END
$body$;
