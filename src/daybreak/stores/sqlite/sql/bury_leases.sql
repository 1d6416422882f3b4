-- Another boot: whoever held these is dead.
UPDATE lease SET until = 0, term = 0
