SELECT seq FROM job WHERE lane = ? AND seq < ? AND NOT EXISTS (SELECT 1 FROM done WHERE done.seq = job.seq)
ORDER BY seq DESC LIMIT ?
