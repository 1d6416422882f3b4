SELECT g.name, g.slots, g.every, g.burst, g.max_waiting, g.probes, g.shut_until, g.used, g.waiting, g.tat, g.look, g.kept_seq,
       g.kept_priority, g.kept_slots, g.fence, g.sparing_until, g.credit, g.spare_at, g.taken_at
FROM daybreak.gauge g WHERE g.name = ANY (%b::text[])
