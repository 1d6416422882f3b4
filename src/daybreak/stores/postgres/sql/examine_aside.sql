SELECT count(*), min(a.why) FROM daybreak.aside a
