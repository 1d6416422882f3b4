DELETE FROM daybreak.queue q WHERE q.name = %b::text
