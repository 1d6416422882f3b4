SELECT max(id) FROM job
