SELECT used, tat, shut_until, look, kept_seq, kept_priority, kept_slots, fence, sparing_until, credit, spare_at,
       taken_at
FROM gauge WHERE name = ?
