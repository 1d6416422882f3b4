-- Settle completed jobs and claim others, when all of it is plain. Each line answered is a lease; the first is not: its
-- `seq` is 1 if it was done, 0 if something was not plain (then nothing was written), `created` the store's time, `due`
-- when the next delayed job falls due. The order of claims is that of rank.py: see the comment at the merge.
CREATE FUNCTION daybreak.exchange_1(
    p_now bigint,
    s_seqs bigint[], s_fences integer[], s_attempts integer[], s_keeps bigint[], s_results bytea[], s_carries bytea[],
    s_notes bytea[], s_ids text[], s_tails text[],
    c_worker text, c_call text, c_queues text[], c_served bigint[], c_tasks text[], c_versions integer[], c_limit integer,
    c_term bigint, c_tail text)
RETURNS TABLE (seq bigint, created bigint, due bigint, id text, lane integer, priority smallint, asked smallint,
    attempt integer, fence integer, by text, run text, owner text, key text, uniq text, carry bytea, options bytea,
    extra bytea, args bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    at bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    settling integer := coalesce(cardinality(s_seqs), 0);
    lanes integer[];
    turns integer[];
    picked tid[];
    more tid[];
    tried bigint[];
    looked integer;
    skipped bigint[] := '{}';
    found integer := 0;
    odd boolean;
    ids text[] := '{}';
    lines text[] := '{}';
BEGIN
    -- What is not plain is seen before anything is written.
    IF settling > 0 THEN
        SELECT count(*) INTO found FROM unnest(s_seqs, s_fences) a(q, f) CROSS JOIN LATERAL (
            SELECT 1 FROM daybreak.lease l
            WHERE l.seq = a.q AND l.fence = a.f AND l.cancelling IS NULL AND NOT (l.n >= 399 AND (l.n + 1) % 200 = 0)
            OFFSET 0) held;
        IF found <> settling THEN
            RETURN QUERY SELECT 0::bigint, at, NULL::bigint, NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text,
                NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
            RETURN;
        END IF;
    END IF;
    IF c_limit IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM daybreak.queue q WHERE q.name = ANY (c_queues) AND q.max_running IS NOT NULL)
           OR EXISTS (SELECT 1 FROM daybreak.delayed d WHERE d.clock = 0 AND d.due <= at)
           OR EXISTS (SELECT 1 FROM daybreak.delayed d WHERE d.clock = 1 AND d.due <= at)
           OR EXISTS (SELECT 1 FROM daybreak.incoming) THEN
            RETURN QUERY SELECT 0::bigint, at, NULL::bigint, NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text,
                NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
            RETURN;
        END IF;
        SELECT array_agg(l.id), array_agg(a.turn) INTO lanes, turns
        FROM unnest(c_queues) WITH ORDINALITY a(queue, turn) JOIN daybreak.lane l ON l.queue = a.queue
        LEFT JOIN daybreak.queue q ON q.name = a.queue
        WHERE q.paused IS NOT TRUE
          AND (c_tasks IS NULL OR EXISTS (SELECT 1 FROM unnest(c_tasks, c_versions) k(task, version)
                                          WHERE k.task = l.task AND k.version = l.version));
        IF cardinality(lanes) = 1 THEN
            SELECT array_agg(p.c ORDER BY p.band, p.ord, p.seq), bool_or(p.odd) INTO picked, odd FROM (
                SELECT r.ctid AS c, r.band, r.ord, r.seq,
                       r.expires <= at OR (r.n >= 399 AND (r.n + 1) % 200 = 0) AS odd
                FROM daybreak.ready r WHERE r.lane = lanes[1]
                ORDER BY r.band, r.ord, r.seq LIMIT c_limit FOR UPDATE SKIP LOCKED) p;
        ELSIF cardinality(lanes) > 1 THEN
            -- The heads of all lanes are merged first and only what was chosen is locked: a lock on more would make
            -- others pass over jobs that nobody takes. What another has locked is left to him, and the merge goes on.
            --
            -- The k-th job of a queue has the key (urgency, turn, place of the queue). Whoever stands behind another of
            -- his queue cannot go before him: his key is the greatest of those up to him.
            picked := '{}';
            LOOP
                looked := c_limit - cardinality(picked);
                EXIT WHEN looked <= 0;
                WITH heads AS (
                    SELECT h.*, a.turn, q.aging, coalesce(q.weight, 1) AS weight, coalesce(q.patience, 1) AS patience
                    FROM unnest(lanes, turns) a(lane, turn)
                    LEFT JOIN daybreak.queue q ON q.name = c_queues[a.turn]
                    CROSS JOIN LATERAL (
                        SELECT r.ctid AS c, r.band, r.ord, r.seq, r.priority, r.expires, r.n
                        FROM daybreak.ready r WHERE r.lane = a.lane AND r.seq <> ALL (skipped)
                        ORDER BY r.band, r.ord, r.seq LIMIT looked) h
                ), placed AS (
                    SELECT h.*, row_number() OVER (PARTITION BY turn ORDER BY band, ord, seq)
                                + (SELECT count(*) FROM unnest(tried) t(turn) WHERE t.turn = h.turn) AS k
                    FROM heads h
                ), keyed AS (
                    SELECT p.*, max(ARRAY[
                        CASE WHEN aging IS NOT TRUE THEN priority::bigint
                             WHEN ord > at THEN (ord - at + greatest(patience, 1) - 1) / greatest(patience, 1)
                             ELSE 0 END,
                        (coalesce(c_served[turn], 0) + k) * 720720 / greatest(weight, 1),
                        turn::bigint]) OVER (PARTITION BY turn ORDER BY band, ord, seq) AS best
                    FROM placed p
                ), chosen AS MATERIALIZED (
                    SELECT c, seq, turn, expires, n, row_number() OVER (ORDER BY best, band, ord, seq) AS o
                    FROM keyed ORDER BY best, band, ord, seq LIMIT looked
                ), locked AS MATERIALIZED (
                    SELECT l.c, l.seq FROM chosen x CROSS JOIN LATERAL (
                        SELECT r.ctid AS c, r.seq FROM daybreak.ready r WHERE r.ctid = x.c AND r.seq = x.seq
                        FOR UPDATE SKIP LOCKED) l
                )
                SELECT count(*), array_agg(l.c ORDER BY x.o) FILTER (WHERE l.c IS NOT NULL),
                       coalesce(tried, '{}') || coalesce(array_agg(x.turn::bigint) FILTER (WHERE l.c IS NOT NULL), '{}'),
                       skipped || coalesce(array_agg(x.seq), '{}'),
                       bool_or(l.c IS NOT NULL AND (x.expires <= at OR (x.n >= 399 AND (x.n + 1) % 200 = 0))) OR odd
                INTO looked, more, tried, skipped, odd
                FROM chosen x LEFT JOIN locked l ON l.seq = x.seq;
                EXIT WHEN looked = 0;
                picked := picked || more;
            END LOOP;
        END IF;
        IF odd THEN
            RETURN QUERY SELECT 0::bigint, at, NULL::bigint, NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text,
                NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
            RETURN;
        END IF;
    END IF;

    IF settling > 0 THEN
        WITH gone AS (
            DELETE FROM daybreak.lease l
            USING unnest(s_seqs, s_fences, s_attempts, s_keeps, s_results, s_carries, s_notes, s_ids, s_tails)
                WITH ORDINALITY AS a(q, f, attempt, keep, result, carry, note, id, tail, o)
            WHERE l.seq = a.q AND l.fence = a.f AND l.cancelling IS NULL
            RETURNING l.seq, l.lane, l.priority, l.fence, l.n + 1 AS n, l.started, l.progress, l.message, l.uniq,
                      l.history, a.attempt, a.keep, a.result, a.carry, a.note, a.id, a.o,
                      '{"n":' || l.n + 1 || ',"at":' || at || a.tail AS line
        ), kept AS (
            INSERT INTO daybreak.done (seq, finished, purge_at, started, attempt, fence, n, state, progress, result,
                                       carry, note, message, history)
            SELECT seq, at, at + keep, started, attempt, fence, n, 'completed', progress, result, carry, note, message,
                   CASE WHEN history IS NULL THEN line ELSE history || E'\n' || line END
            FROM gone
        ), counted AS (
            INSERT INTO daybreak.tally (lane, priority, state, n)
            SELECT g.lane, g.priority, s.state, s.sign * g.n
            FROM (SELECT lane, priority, count(*) AS n FROM gone GROUP BY lane, priority) g
            CROSS JOIN (VALUES ('running', -1), ('completed', 1)) s(state, sign)
        ), freed AS (
            DELETE FROM daybreak.uniq u USING gone g WHERE g.uniq IS NOT NULL AND u.name = g.uniq AND u.seq = g.seq
        )
        SELECT count(*), array_agg(g.id ORDER BY g.o), array_agg(g.line ORDER BY g.o) INTO found, ids, lines FROM gone g;
        IF found <> settling THEN  -- someone took or cancelled one since the look above: the caller asks otherwise
            RAISE EXCEPTION 'not plain any more' USING ERRCODE = 'DBQ01';
        END IF;
    END IF;

    RETURN QUERY SELECT 1::bigint, at,
        CASE WHEN c_limit > coalesce(cardinality(picked), 0)
             THEN least((SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 0),
                        (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 1)) END,
        NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
        NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;

    IF coalesce(cardinality(picked), 0) > 0 THEN
        RETURN QUERY WITH gone AS (
            DELETE FROM daybreak.ready r WHERE r.ctid = ANY (picked)
            RETURNING r.ctid AS c, r.seq, r.attempt + 1 AS attempt, r.fence + 1 AS fence, r.n + 1 AS n, r.carry, r.history,
                      r.expires
        ), taken AS MATERIALIZED (
            SELECT g.*, j.created, j.id, j.lane, j.priority, j.asked, j.by, j.run, j.owner, j.key, j.uniq, j.options, j.extra,
                   j.args, p.o,
                   '{"n":' || g.n || ',"at":' || at || c_tail || ',"attempt":' || g.attempt || ',"fence":' || g.fence || '}'
                       AS line
            FROM gone g JOIN unnest(picked) WITH ORDINALITY p(c, o) ON p.c = g.c
            CROSS JOIN LATERAL (SELECT * FROM daybreak.job j WHERE j.seq = g.seq OFFSET 0) j
        ), leased AS (
            INSERT INTO daybreak.lease (seq, until, term, started, lane, attempt, fence, n, priority, worker, call, uniq,
                                        carry, history)
            SELECT seq, at + c_term, c_term, at, lane, attempt, fence, n, priority, c_worker, c_call, uniq, carry,
                   CASE WHEN history IS NULL THEN line ELSE history || E'\n' || line END
            FROM taken
        ), forgotten AS (
            UPDATE daybreak.job j SET expires = NULL FROM taken t WHERE t.expires IS NOT NULL AND j.seq = t.seq
        ), counted AS (
            INSERT INTO daybreak.tally (lane, priority, state, n)
            SELECT t.lane, t.priority, s.state, s.sign * t.n
            FROM (SELECT lane, priority, count(*) AS n FROM taken GROUP BY lane, priority) t
            CROSS JOIN (VALUES ('queued', -1), ('running', 1)) s(state, sign)
        ), told AS (
            INSERT INTO daybreak.feed (at, ids, lines)
            SELECT at, array_agg(w.id ORDER BY w.o), string_agg(w.line, E'\n' ORDER BY w.o)
            FROM (SELECT s.id, s.line, s.o FROM unnest(ids, lines) WITH ORDINALITY s(id, line, o)
                  UNION ALL SELECT t.id, t.line, settling + t.o FROM taken t) w
            GROUP BY (w.o - 1) / 500 ORDER BY (w.o - 1) / 500
        )
        SELECT t.seq, t.created, NULL::bigint, t.id, t.lane, t.priority, t.asked, t.attempt, t.fence, t.by, t.run, t.owner,
               t.key, t.uniq, t.carry, t.options, t.extra, t.args
        FROM taken t ORDER BY t.o;
    ELSIF settling > 0 THEN
        INSERT INTO daybreak.feed (at, ids, lines)
        SELECT at, array_agg(w.id ORDER BY w.o), string_agg(w.line, E'\n' ORDER BY w.o)
        FROM unnest(ids, lines) WITH ORDINALITY w(id, line, o) GROUP BY (w.o - 1) / 500 ORDER BY (w.o - 1) / 500;
    END IF;
END
$body$;
