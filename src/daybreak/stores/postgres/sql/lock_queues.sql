-- In the order of names, so that two who need several wait for each other in one direction only.
SELECT q.name FROM daybreak.queue q WHERE q.name = ANY (%b::text[]) ORDER BY q.name FOR UPDATE
