SELECT (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 0),
       (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 1),
       (SELECT min(g.look) FROM daybreak.gauge g WHERE g.look IS NOT NULL)
