SELECT max(coalesce((SELECT max(seq) FROM job), 0), coalesce((SELECT value FROM meta WHERE name = 'seq'), 0))
