SELECT seq FROM done INDEXED BY done_unhappy WHERE state = ? AND state <> 'completed' AND seq < ? ORDER BY seq DESC LIMIT ?
