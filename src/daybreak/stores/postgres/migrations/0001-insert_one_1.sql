-- Accept one plain job: insert_1 for who submits one at a time, in statements that cost less to begin than one for many.
-- `seq` is NULL when it is not plain after all; then nothing was written. Where p_channel is given, those who wait for one of
-- p_topics are told by the commit itself, p_who apart, and `told` are the topics of which they were. Who begins to wait at this
-- very moment may not be seen here: see wake.py. Of p_offset and p_about see exchange_1.
CREATE FUNCTION daybreak.insert_one_1(
    p_now bigint, p_queue text, p_id text, p_lane integer, p_priority smallint, p_expires bigint, p_by text,
    p_run text, p_owner text, p_options bytea, p_extra bytea, p_args bytea, p_needs text, p_resources text[], p_tail text,
    p_channel text, p_topics text[], p_who text, p_offset bigint, p_about bigint, OUT at bigint, OUT seq bigint, OUT told text[])
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    hand bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - p_offset);
    wall bigint := hand + p_offset;
    new bigint;
BEGIN
    at := hand;
    IF abs(hand - p_about) > 5000000
       OR EXISTS (SELECT 1 FROM daybreak.queue q WHERE q.name = p_queue AND (q.capacity IS NOT NULL OR q.aging))
       OR (p_resources IS NOT NULL AND EXISTS (
               SELECT 1 FROM daybreak.gauge g WHERE g.name = ANY (p_resources) AND g.max_waiting IS NOT NULL))
       OR EXISTS (SELECT 1 FROM daybreak.job j WHERE j.id = p_id) THEN
        RETURN;
    END IF;
    new := nextval('daybreak.seq');
    INSERT INTO daybreak.job (seq, created, arrived, ord, expires, lane, band, priority, asked, id, by, run, owner, options,
                              extra, args)
    VALUES (new, wall, hand, 0, hand + p_expires, p_lane, p_priority, p_priority, p_priority, p_id, p_by, p_run, p_owner,
            p_options, p_extra, p_args);
    INSERT INTO daybreak.ready (lane, band, priority, ord, seq, expires, attempt, fence, n, needs)
    VALUES (p_lane, p_priority, p_priority, 0, new, hand + p_expires, 0, 0, 1, p_needs);
    INSERT INTO daybreak.tally (lane, priority, state, n, what) VALUES (p_lane, p_priority, 'queued', 1, 'submitted');
    INSERT INTO daybreak.feed (at, ids, runs, lines) VALUES (hand, p_id, '{1}', '{"n":1,"at":' || wall || p_tail);
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
