SELECT (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 0),
       (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock = 1)
