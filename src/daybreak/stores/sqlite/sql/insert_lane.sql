INSERT INTO lane (queue, task, version) VALUES (?, ?, ?) RETURNING id
