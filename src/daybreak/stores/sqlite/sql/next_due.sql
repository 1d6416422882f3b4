SELECT
    (SELECT min(due) FROM delayed WHERE clock = 0),
    (SELECT min(due) FROM delayed WHERE clock = 1),
    (SELECT min(look) FROM gauge WHERE look IS NOT NULL)
