-- Settle completed jobs and claim others in one call, if the request is plain (plain_path.py).
--
-- The first row is the status, every other row a lease. In the first row:
--   seq      Status: 1 done; 0 not plain, use the general path; 2 retry with p_alone = true, because a job needs resources
--            and the resource lock must be taken before every other lock. With 0 and 2 nothing was written.
--   created  the store's steady time
--   due      when the next delayed job falls due or the next resource must be offered again
--   id       the queues with max_running in which a settlement has made room, separated by character 31
--   lane     1 if resources were taken or given back
--
-- Times are steady: the server's time minus p_offset. `wall` is for times that people see. If steady time differs much from
-- p_about, which the caller expects, the clock may have jumped: then the status is 0.
-- s_counts is NULL if all settlements count as `completed`, as most do.
-- A claim of one job has its own, cheaper statements: most claims that find few jobs find one.
-- The order of claims is that of rank.py: see the comment at the merge. Resources are those of core/resource_gauge.py.
CREATE FUNCTION daybreak.exchange_1(
    p_now bigint, p_alone boolean, p_offset bigint, p_about bigint,
    s_seqs bigint[], s_fences integer[], s_attempts integer[], s_keeps bigint[], s_results bytea[], s_carries bytea[],
    s_notes bytea[], s_ids text[], s_tails text[], s_counts text[], s_rans bigint[], s_waits bigint[],
    c_worker text, c_call text, c_queues text[], c_served bigint[], c_tasks text[], c_versions integer[], c_limit integer,
    c_term bigint, c_tail text, c_begins integer)
RETURNS TABLE (seq bigint, created bigint, due bigint, id text, lane integer, priority smallint, asked smallint,
    attempt integer, fence integer, by text, run text, owner text, key text, uniq text, carry bytea, options bytea,
    extra bytea, args bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    at bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - p_offset);
    wall bigint;
    settling integer := coalesce(cardinality(s_seqs), 0);
    lanes integer[];
    turns integer[];
    picked tid[];
    more tid[];
    tried bigint[];
    wanted_jobs integer;
    deep integer := 0;
    is_short boolean;
    skipped bigint[] := '{}';
    seen bigint[];
    found integer := 0;
    odd boolean;
    ids text[] := '{}';
    lines text[] := '{}';
    freed integer[];
    queues_with_room text;
    wants text[] := '{}';
    more_wants text[];
    gives text[] := '{}';
    look bigint;
    next_due bigint;
    ready_row record;
    what record;
    line text;
BEGIN
    IF p_alone THEN
        PERFORM pg_advisory_xact_lock(4473428, hashtext('daybreak.gauge'));
        at := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - p_offset);
    END IF;
    IF abs(at - p_about) > 5000000 THEN
        RETURN QUERY SELECT 0::bigint, at, NULL::bigint, NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text,
            NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
        RETURN;
    END IF;
    IF c_limit IS NOT NULL THEN
        -- A change of queue settings waits for the claims that do not see it, and precedes all later ones.
        PERFORM pg_advisory_xact_lock_shared(4473428, hashtext('daybreak.ready'));
        SELECT EXISTS (SELECT 1 FROM daybreak.queue q WHERE q.name = ANY (c_queues) AND q.max_running IS NOT NULL)
                   OR EXISTS (SELECT 1 FROM daybreak.incoming) OR EXISTS (SELECT 1 FROM daybreak.flight f WHERE f.landing),
               least((SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 0),
                     (SELECT min(d.due) - p_offset FROM daybreak.delayed d WHERE d.clock = 1)),
               (SELECT min(g.look) FROM daybreak.gauge g WHERE g.look IS NOT NULL), array_agg(l.id), array_agg(a.turn)
        INTO odd, next_due, look, lanes, turns
        FROM unnest(c_queues) WITH ORDINALITY a(queue, turn) JOIN daybreak.lane l ON l.queue = a.queue
        LEFT JOIN daybreak.queue q ON q.name = a.queue
        WHERE q.paused IS NOT TRUE
          AND (c_tasks IS NULL OR EXISTS (SELECT 1 FROM unnest(c_tasks, c_versions) k(task, version)
                                          WHERE k.task = l.task AND k.version = l.version));
        IF odd OR next_due <= at THEN
            RETURN QUERY SELECT 0::bigint, at, NULL::bigint, NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text,
                NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
            RETURN;
        END IF;
        IF look <= at THEN
            RETURN QUERY SELECT 2::bigint, at, NULL::bigint, NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text,
                NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
            RETURN;
        END IF;
        IF cardinality(lanes) = 1 THEN
            SELECT array_agg(p.c ORDER BY p.band, p.ord, p.seq), bool_or(p.odd),
                   coalesce(array_agg(p.needs) FILTER (WHERE p.needs IS NOT NULL), '{}')
            INTO picked, odd, wants FROM (
                SELECT r.ctid AS c, r.band, r.ord, r.seq, r.needs,
                       r.expires <= at OR r.special OR (r.n >= 399 AND (r.n + 1) % 200 = 0)
                           OR (r.needs IS NOT NULL AND (r.carry IS NOT NULL OR r.attempt > 0)) AS odd
                FROM daybreak.ready r WHERE r.lane = lanes[1]
                ORDER BY r.band, r.ord, r.seq LIMIT c_limit FOR UPDATE SKIP LOCKED) p;
        ELSIF cardinality(lanes) > 1 THEN
            -- Merge the heads of all lanes first and lock only the chosen jobs: other claims skip locked jobs, so a lock
            -- on more would hide jobs that nobody takes. A job that another claim has locked is skipped, and the merge
            -- continues.
            --
            -- The k-th job of a queue has the key (urgency, turn, index of the queue). A job cannot precede an earlier
            -- job of its own queue: its key is the greatest of all keys up to it.
            --
            -- Only the first `deep` jobs of each lane are read. If the last of these was chosen, later jobs of that lane
            -- may precede jobs of other lanes: then lock nothing and read deeper.
            picked := '{}';
            LOOP
                wanted_jobs := c_limit - cardinality(picked);
                EXIT WHEN wanted_jobs <= 0;
                deep := least(wanted_jobs, greatest(deep, 8, 2 * wanted_jobs / cardinality(lanes)));
                WITH heads AS (
                    SELECT h.*, row_number() OVER (PARTITION BY a.lane ORDER BY h.band, h.ord, h.seq) = deep AS is_last,
                           a.turn, q.aging, coalesce(q.weight, 1) AS weight, coalesce(q.patience, 1) AS patience
                    FROM unnest(lanes, turns) a(lane, turn)
                    LEFT JOIN daybreak.queue q ON q.name = c_queues[a.turn]
                    CROSS JOIN LATERAL (
                        SELECT r.ctid AS c, r.band, r.ord, r.seq, r.priority, r.expires, r.n, r.needs,
                               r.special
                                   OR (r.needs IS NOT NULL AND (r.carry IS NOT NULL OR r.attempt > 0)) AS is_odd
                        FROM daybreak.ready r WHERE r.lane = a.lane AND r.seq <> ALL (skipped)
                        ORDER BY r.band, r.ord, r.seq LIMIT deep) h
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
                    SELECT c, seq, turn, expires, n, needs, is_odd, is_last, row_number() OVER (ORDER BY best, band, ord, seq) AS o
                    FROM keyed ORDER BY best, band, ord, seq LIMIT wanted_jobs
                ), judged AS MATERIALIZED (
                    SELECT deep < wanted_jobs AND bool_or(x.is_last) AS is_short FROM chosen x
                ), locked AS MATERIALIZED (
                    SELECT l.c, l.seq FROM (SELECT x.* FROM chosen x, judged j WHERE j.is_short IS NOT TRUE) x CROSS JOIN LATERAL (
                        SELECT r.ctid AS c, r.seq FROM daybreak.ready r WHERE r.ctid = x.c AND r.seq = x.seq
                        FOR UPDATE SKIP LOCKED) l
                )
                SELECT count(*), array_agg(l.c ORDER BY x.o) FILTER (WHERE l.c IS NOT NULL),
                       coalesce(tried, '{}') || coalesce(array_agg(x.turn::bigint) FILTER (WHERE l.c IS NOT NULL), '{}'),
                       skipped || coalesce(array_agg(x.seq), '{}'),
                       coalesce(bool_or(l.c IS NOT NULL AND (x.is_odd OR x.expires <= at
                                                              OR (x.n >= 399 AND (x.n + 1) % 200 = 0))), false)
                           OR coalesce(odd, false),
                       (SELECT j.is_short FROM judged j),
                       coalesce(array_agg(x.needs) FILTER (WHERE l.c IS NOT NULL AND x.needs IS NOT NULL), '{}')
                INTO found, more, tried, seen, odd, is_short, more_wants
                FROM chosen x LEFT JOIN locked l ON l.seq = x.seq;
                IF is_short THEN
                    deep := deep * 4;
                    CONTINUE;
                END IF;
                EXIT WHEN found = 0;
                picked := picked || more;
                wants := wants || more_wants;
                skipped := seen;
            END LOOP;
        END IF;
        -- A picked job may have been due, and queued by another transaction, after the clock was read above.
        at := greatest(at, coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - p_offset));
        IF odd OR (cardinality(wants) > 0 AND NOT p_alone) THEN
            RETURN QUERY SELECT CASE WHEN cardinality(wants) > 0 THEN 2 ELSE 0 END::bigint, at, NULL::bigint, NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text,
                NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
            RETURN;
        END IF;
    END IF;

    wall := at + p_offset;
    IF settling > 0 OR cardinality(wants) > 0 THEN
      BEGIN
       IF settling > 0 THEN
        WITH gone AS (
            DELETE FROM daybreak.lease l
            USING unnest(s_seqs, s_fences, s_attempts, s_keeps, s_results, s_carries, s_notes, s_ids, s_tails, s_counts,
                         s_rans, s_waits)
                WITH ORDINALITY AS a(q, f, attempt, keep, result, carry, note, id, tail, what, ran, waited, o)
            WHERE l.seq = a.q AND l.fence = a.f AND l.cancelling IS NULL AND (p_alone OR l.needs IS NULL)
              AND l.batch_group IS NULL AND l.flight IS NULL AND NOT (l.n >= 399 AND (l.n + 1) % 200 = 0)
            RETURNING l.seq, l.lane, l.priority, l.fence, l.n + 1 AS n, l.started, l.progress, l.message, l.uniq,
                      l.needs, l.history, a.attempt, a.keep, a.result, a.carry, a.note, a.id, a.o,
                      CASE WHEN s_counts IS NULL THEN 'completed' ELSE a.what END AS what, a.ran, a.waited,
                      '{"n":' || l.n + 1 || ',"at":' || wall || a.tail AS line
        ), kept AS (
            INSERT INTO daybreak.done (seq, finished, purge_at, started, attempt, fence, n, state, progress, result,
                                       carry, note, message, history)
            SELECT seq, wall, at + keep, started, attempt, fence, n, 'completed', progress, result, carry, note, message,
                   CASE WHEN history IS NULL THEN line ELSE history || E'\n' || line END
            FROM gone
        ), counted AS (
            -- A row whose `what` is NULL adds nothing to the totals, whatever its other columns contain.
            INSERT INTO daybreak.tally (lane, priority, state, n, what, took, latest, ran, firsts, waited, attempts, batches)
            SELECT g.lane, g.priority, s.state, s.sign * g.n, CASE WHEN s.sign = 1 THEN g.what END, g.took, wall, g.ran, g.firsts,
                   g.waited, g.attempts, CASE WHEN s_counts IS NULL THEN 1 END
            FROM (SELECT lane, priority, what, count(*) AS n, sum(ran) AS took, max(ran) AS ran,
                         nullif(count(waited), 0) AS firsts, sum(waited) AS waited,
                         max(attempt) FILTER (WHERE attempt > 1) AS attempts
                  FROM gone GROUP BY lane, priority, what) g
            CROSS JOIN (VALUES ('running', -1), ('completed', 1)) s(state, sign)
        ), freed AS (
            DELETE FROM daybreak.uniq u USING gone g WHERE g.uniq IS NOT NULL AND u.name = g.uniq AND u.seq = g.seq
        )
        SELECT count(*), array_agg(g.id), array_agg(g.line), array_agg(DISTINCT g.lane),
               coalesce(array_agg(g.needs) FILTER (WHERE g.needs IS NOT NULL), '{}')
        INTO found, ids, lines, freed, gives FROM gone g;
        IF found <> settling THEN
            RAISE EXCEPTION 'not plain' USING ERRCODE = 'DBQ01';
        END IF;
        IF s_counts IS NOT NULL THEN
            -- One batch for each lane and priority, however many different outcomes its jobs have.
            INSERT INTO daybreak.total (lane, priority, what, n)
            SELECT DISTINCT j.lane, j.priority, 'batches', 1
            FROM unnest(s_seqs, s_counts) a(q, what)
            CROSS JOIN LATERAL (SELECT j.lane, j.priority FROM daybreak.job j WHERE j.seq = a.q OFFSET 0) j
            WHERE a.what IS NOT NULL;
        END IF;
       END IF;
       IF cardinality(wants) + cardinality(gives) > 0 THEN
        -- All wanted slots must be free, and no job may wait for a freed resource. Not plain are a resource without a row,
        -- one with a reservation, one whose retries are limited, and one that was used as a lock (it has a fence).
        WITH said AS (
            SELECT w.needs::jsonb AS needs, count(*) AS n, true AS takes FROM unnest(wants) w(needs) GROUP BY w.needs
            UNION ALL
            SELECT g.needs::jsonb, count(*), false FROM unnest(gives) g(needs) GROUP BY g.needs
        ), moved AS MATERIALIZED (
            SELECT e.key AS name, bool_or(NOT s.takes) AS is_freed,
                   coalesce(sum(s.n) FILTER (WHERE s.takes), 0)::bigint AS starts,
                   sum(CASE WHEN s.takes THEN s.n ELSE -s.n END * e.value::bigint)::bigint AS slots
            FROM said s CROSS JOIN LATERAL jsonb_each_text(s.needs) e GROUP BY e.key
        ), changed AS (
            UPDATE daybreak.gauge g
            SET used = g.used + m.slots, look = CASE WHEN m.is_freed THEN NULL ELSE g.look END,
                tat = CASE WHEN m.starts > 0 AND g.every <> 0 THEN greatest(g.tat, at) + m.starts * g.every ELSE g.tat END,
                taken_at = CASE WHEN m.starts > 0 AND g.every <> 0 THEN wall ELSE g.taken_at END
            FROM moved m
            WHERE g.name = m.name AND NOT (m.is_freed AND g.waiting > 0)
              AND (m.starts = 0 OR (
                  at >= g.shut_until AND at >= g.sparing_until AND g.kept_seq IS NULL AND g.fence = 0
                  AND coalesce(g.used + m.slots <= least(g.probes, g.slots), true)
                  AND (coalesce(g.every, 0) = 0
                       OR greatest(g.tat, at) + (m.starts - greatest(g.burst, 1)) * g.every <= at)))
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM changed) - (SELECT count(*) FROM moved) INTO found;
        IF found <> 0 THEN
            RAISE EXCEPTION 'not plain' USING ERRCODE = 'DBQ01';
        END IF;
        SELECT min(g.look) INTO look FROM daybreak.gauge g WHERE g.look IS NOT NULL;
       END IF;
      EXCEPTION WHEN SQLSTATE 'DBQ01' THEN
        -- A settlement was lost, repeated or cancelled, its history is long, or a resource is not free: undo and report.
        RETURN QUERY SELECT CASE WHEN EXISTS (
            SELECT 1 FROM unnest(s_seqs) a(seq) JOIN daybreak.lease l ON l.seq = a.seq WHERE l.needs IS NOT NULL)
            THEN 2 ELSE 0 END::bigint, at, NULL::bigint, NULL::text, 0, 0::smallint, 0::smallint, 0, 0, NULL::text,
            NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea;
        RETURN;
      END;
        SELECT string_agg(DISTINCT q.name, chr(31)) INTO queues_with_room
        FROM daybreak.lane l JOIN daybreak.queue q ON q.name = l.queue
        WHERE l.id = ANY (freed) AND q.max_running IS NOT NULL;
    END IF;

    seq := 1;
    created := at;
    due := CASE WHEN c_limit > coalesce(cardinality(picked), 0) THEN least(next_due, look) END;
    id := queues_with_room;
    lane := (cardinality(wants) + cardinality(gives) > 0)::integer;
    priority := 0;
    asked := 0;
    attempt := 0;
    fence := 0;
    RETURN NEXT;

    IF cardinality(picked) = 1 AND settling = 0 THEN
        DELETE FROM daybreak.ready r WHERE r.ctid = picked[1]
        RETURNING r.seq, r.attempt + 1 AS attempt, r.fence + 1 AS fence, r.n + 1 AS n, r.carry, r.history, r.expires, r.needs
        INTO ready_row;
        SELECT * INTO what FROM daybreak.job j WHERE j.seq = ready_row.seq;
        line := '{"n":' || ready_row.n || ',"at":' || wall || c_tail || ',"attempt":' || ready_row.attempt || ',"fence":' || ready_row.fence || '}';
        INSERT INTO daybreak.lease (seq, until, term, started, lane, attempt, fence, n, priority, worker, call, uniq, flight, carry,
                                    history, needs, ahead)
        VALUES (ready_row.seq, at + c_term, c_term, wall, what.lane, ready_row.attempt, ready_row.fence, ready_row.n, what.priority, c_worker, c_call,
                what.uniq, what.flight, ready_row.carry, CASE WHEN ready_row.history IS NULL THEN line ELSE ready_row.history || E'\n' || line END, ready_row.needs,
                coalesce(c_begins < 1, false));
        IF ready_row.expires IS NOT NULL THEN
            UPDATE daybreak.job j SET expires = NULL WHERE j.seq = ready_row.seq;
        END IF;
        INSERT INTO daybreak.tally (lane, priority, state, n)
        VALUES (what.lane, what.priority, 'queued', -1), (what.lane, what.priority, 'running', 1);
        INSERT INTO daybreak.feed (at, ids, runs, lines) VALUES (at, what.id, '{1}', line);
        seq := ready_row.seq;
        created := what.created;
        due := NULL;
        id := what.id;
        lane := what.lane;
        priority := what.priority;
        asked := what.asked;
        attempt := ready_row.attempt;
        fence := ready_row.fence;
        "by" := what."by";
        run := what.run;
        owner := what.owner;
        key := what.key;
        uniq := what.uniq;
        carry := ready_row.carry;
        options := what.options;
        extra := what.extra;
        args := what.args;
        RETURN NEXT;
    ELSIF cardinality(picked) > 0 THEN
        RETURN QUERY WITH gone AS (
            -- The join carries the order (p.o). A second join for it would be planned by the statistics of the table, which
            -- may be outdated.
            DELETE FROM daybreak.ready r USING unnest(picked) WITH ORDINALITY p(c, o) WHERE r.ctid = p.c
            RETURNING r.seq, r.attempt + 1 AS attempt, r.fence + 1 AS fence, r.n + 1 AS n, r.carry, r.history, r.expires,
                      r.needs, p.o
        ), taken AS MATERIALIZED (
            SELECT g.*, j.created, j.id, j.lane, j.priority, j.asked, j.by, j.run, j.owner, j.key, j.uniq, j.flight, j.options,
                   j.extra, j.args,
                   '{"n":' || g.n || ',"at":' || wall || c_tail || ',"attempt":' || g.attempt || ',"fence":' || g.fence || '}'
                       AS line
            FROM gone g CROSS JOIN LATERAL (SELECT * FROM daybreak.job j WHERE j.seq = g.seq OFFSET 0) j
        ), leased AS (
            INSERT INTO daybreak.lease (seq, until, term, started, lane, attempt, fence, n, priority, worker, call, uniq,
                                        flight, carry, history, needs, ahead)
            SELECT seq, at + c_term, c_term, wall, lane, attempt, fence, n, priority, c_worker, c_call, uniq, flight, carry,
                   CASE WHEN history IS NULL THEN line ELSE history || E'\n' || line END, needs, coalesce(o > c_begins, false)
            FROM taken
        ), forgotten AS (
            UPDATE daybreak.job j SET expires = NULL FROM taken t WHERE t.expires IS NOT NULL AND j.seq = t.seq
        ), counted AS (
            INSERT INTO daybreak.tally (lane, priority, state, n)
            SELECT t.lane, t.priority, s.state, s.sign * t.n
            FROM (SELECT lane, priority, count(*) AS n FROM taken GROUP BY lane, priority) t
            CROSS JOIN (VALUES ('queued', -1), ('running', 1)) s(state, sign)
        ), told AS (
            INSERT INTO daybreak.feed (at, ids, runs, lines)
            SELECT at, string_agg(w.ids, chr(31) ORDER BY w.o), array_agg(w.n ORDER BY w.o), string_agg(w.line, E'\n' ORDER BY w.o)
            FROM (SELECT s.line, min(s.o) AS o, count(*)::integer AS n, string_agg(s.id, chr(31)) AS ids
                  FROM unnest(ids, lines) WITH ORDINALITY s(id, line, o) GROUP BY s.line
                  UNION ALL
                  SELECT t.line, settling + min(t.o), count(*)::integer, string_agg(t.id, chr(31)) FROM taken t GROUP BY t.line) w
        )
        SELECT t.seq, t.created, NULL::bigint, t.id, t.lane, t.priority, t.asked, t.attempt, t.fence, t.by, t.run, t.owner,
               t.key, t.uniq, t.carry, t.options, t.extra, t.args
        FROM taken t ORDER BY t.o;
    ELSIF settling > 0 THEN
        INSERT INTO daybreak.feed (at, ids, runs, lines)
        SELECT at, string_agg(w.ids, chr(31) ORDER BY w.o), array_agg(w.n ORDER BY w.o), string_agg(w.line, E'\n' ORDER BY w.o)
        FROM (SELECT s.line, min(s.o) AS o, count(*)::integer AS n, string_agg(s.id, chr(31)) AS ids
              FROM unnest(ids, lines) WITH ORDINALITY s(id, line, o) GROUP BY s.line) w;
    END IF;
END
$body$;
