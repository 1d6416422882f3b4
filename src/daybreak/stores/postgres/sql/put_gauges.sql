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
