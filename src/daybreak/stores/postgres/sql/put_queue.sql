INSERT INTO daybreak.queue (name, paused, max_running, capacity, sheds, aging, patience, weight)
VALUES (%b::text, %b::boolean, %b::bigint, %b::bigint, %b::boolean, %b::boolean, %b::bigint, %b::bigint)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, max_running = excluded.max_running,
    capacity = excluded.capacity, sheds = excluded.sheds, aging = excluded.aging, patience = excluded.patience,
    weight = excluded.weight
