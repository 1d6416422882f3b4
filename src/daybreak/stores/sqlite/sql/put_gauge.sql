INSERT OR REPLACE INTO gauge (
    name, used, tat, shut_until, look, kept_seq, kept_priority, kept_slots, fence, sparing_until, credit, spare_at,
    taken_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
