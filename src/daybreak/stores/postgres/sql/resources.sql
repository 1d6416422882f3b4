-- Gauges of resources, and the jobs that wait for them.

-- name: all_usage
SELECT name, coalesce(g.used, 0), coalesce(g.waiting, 0), coalesce(g.shut_until, 0)
FROM daybreak.gauge g FULL JOIN (SELECT r.name FROM daybreak.record r WHERE r.kind = 'resource') r USING (name)
WHERE (r.name IS NOT NULL OR g.used <> 0 OR g.waiting <> 0 OR g.shut_until <> 0) AND name = coalesce(%b::text, name)
ORDER BY name

-- name: gauges_to_look_at
SELECT g.name FROM daybreak.gauge g WHERE g.look <= %b::bigint ORDER BY g.look, g.name LIMIT %b::bigint

-- name: has_max_waiting
SELECT EXISTS (SELECT 1 FROM daybreak.gauge g WHERE g.name = ANY (%b::text[]) AND g.max_waiting IS NOT NULL)

-- name: load_gauges
SELECT g.name, g.slots, g.every, g.burst, g.max_waiting, g.probes, g.shut_until, g.used, g.waiting, g.tat, g.look, g.kept_seq,
       g.kept_priority, g.kept_slots, g.fence, g.sparing_until, g.credit, g.spare_at, g.taken_at
FROM daybreak.gauge g WHERE g.name = ANY (%b::text[])

-- name: lock_gauges
-- The resource lock: exclusive, for all resources, until the end of the transaction. It is taken before any other lock, so
-- a transaction that waits for it holds nothing. Later statements see the current state, and the time is read after the
-- wait.
WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(4473428, hashtext('daybreak.gauge')))
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM alone

-- name: put_gauges
INSERT INTO daybreak.gauge (name, slots, every, burst, max_waiting, probes, shut_until, used, waiting, tat, look, kept_seq,
                            kept_priority, kept_slots, fence, sparing_until, credit, spare_at, taken_at)
SELECT * FROM unnest(%b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[])
ON CONFLICT (name) DO UPDATE SET slots = excluded.slots, every = excluded.every, burst = excluded.burst,
    max_waiting = excluded.max_waiting, probes = excluded.probes, shut_until = excluded.shut_until, used = excluded.used,
    waiting = excluded.waiting, tat = excluded.tat, look = excluded.look, kept_seq = excluded.kept_seq,
    kept_priority = excluded.kept_priority, kept_slots = excluded.kept_slots, fence = excluded.fence,
    sparing_until = excluded.sparing_until, credit = excluded.credit, spare_at = excluded.spare_at,
    taken_at = excluded.taken_at
