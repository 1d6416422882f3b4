SELECT used, tat, shut_until, look, kept_seq, kept_priority, kept_slots, fence FROM gauge WHERE name = ?
