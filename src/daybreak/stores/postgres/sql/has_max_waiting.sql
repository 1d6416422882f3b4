SELECT EXISTS (SELECT 1 FROM daybreak.gauge g WHERE g.name = ANY (%b::text[]) AND g.max_waiting IS NOT NULL)
