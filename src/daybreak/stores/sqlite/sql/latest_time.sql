-- The latest steady time that the file knows of.
SELECT max(
    coalesce((SELECT arrived FROM job ORDER BY seq DESC LIMIT 1), 0),
    coalesce((SELECT at FROM feed ORDER BY pos DESC LIMIT 1), 0),
    coalesce((SELECT value FROM meta WHERE name = 'steady'), 0)
)
