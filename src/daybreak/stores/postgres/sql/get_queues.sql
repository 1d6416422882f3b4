SELECT q.name, q.paused, q.max_running, q.capacity, q.sheds, q.aging, q.patience, q.weight FROM daybreak.queue q WHERE q.name = ANY (%b::text[])
