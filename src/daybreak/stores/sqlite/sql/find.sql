-- Pages of jobs, counts and positions; each statement reads one index.

-- name: ahead_among_waiting
SELECT count(*) FROM (SELECT 1 FROM held WHERE cause = ? AND lane = ? AND (band, ord, seq) < (?, ?, ?) LIMIT ?)

-- name: ahead_in_lane
SELECT count(*) FROM (SELECT 1 FROM ready WHERE lane = ? AND (band, ord, seq) < (?, ?, ?) LIMIT ?)

-- name: count_owner
-- As count_run.
SELECT j.lane, j.priority, coalesce(d.state, h.state, iif(l.seq IS NULL, iif(t.seq IS NULL, 'queued', 'scheduled'), 'running')) AS state,
       count(*)
FROM job j
LEFT JOIN done d ON d.seq = j.seq LEFT JOIN held h ON h.seq = j.seq
LEFT JOIN lease l ON l.seq = j.seq LEFT JOIN delayed t ON t.seq = j.seq
WHERE j.owner = ?1 AND (?2 IS NULL OR d.reason = ?2)
GROUP BY 1, 2, 3

-- name: count_run
-- The jobs of a run by lane, priority and state. A job that is in no other table is in `ready`, which has no index by seq.
SELECT j.lane, j.priority, coalesce(d.state, h.state, iif(l.seq IS NULL, iif(t.seq IS NULL, 'queued', 'scheduled'), 'running')) AS state,
       count(*)
FROM job j
LEFT JOIN done d ON d.seq = j.seq LEFT JOIN held h ON h.seq = j.seq
LEFT JOIN lease l ON l.seq = j.seq LEFT JOIN delayed t ON t.seq = j.seq
WHERE j.run = ?1 AND (?2 IS NULL OR d.reason = ?2)
GROUP BY 1, 2, 3

-- name: count_waiting
SELECT count(*) FROM (SELECT 1 FROM held WHERE cause = ? LIMIT ?)

-- name: last_blocked_in_lane
SELECT band, ord, seq FROM held WHERE lane = ? AND cause IS NOT NULL ORDER BY band DESC, ord DESC, seq DESC LIMIT 1

-- name: last_in_lane
SELECT band, ord, seq FROM ready WHERE lane = ? ORDER BY band DESC, ord DESC, seq DESC LIMIT 1

-- name: last_waiting_in_lane
SELECT band, ord, seq FROM held WHERE cause = ? AND lane = ? ORDER BY band DESC, ord DESC, seq DESC LIMIT 1

-- name: scan_delayed
SELECT due, seq FROM delayed WHERE clock = ? AND (due, seq) > (?, ?) ORDER BY due, seq LIMIT ?

-- name: scan_done
SELECT seq FROM done WHERE seq < ? ORDER BY seq DESC LIMIT ?

-- name: scan_held
SELECT seq FROM held WHERE seq < ? ORDER BY seq DESC LIMIT ?

-- name: scan_jobs
SELECT seq FROM job WHERE seq < ? ORDER BY seq DESC LIMIT ?

-- name: scan_key
SELECT j.seq FROM idem i JOIN job j ON j.id = i.id WHERE i.key = ? AND j.seq < ? LIMIT ?

-- name: scan_lane
SELECT seq FROM job WHERE lane = ? AND seq < ? ORDER BY seq DESC LIMIT ?

-- name: scan_lane_unfinished
SELECT seq FROM job WHERE lane = ? AND seq < ? AND NOT EXISTS (SELECT 1 FROM done WHERE done.seq = job.seq)
ORDER BY seq DESC LIMIT ?

-- name: scan_lease
SELECT seq FROM lease WHERE seq < ? ORDER BY seq DESC LIMIT ?

-- name: scan_owner
SELECT seq FROM job WHERE owner = ? AND seq < ? ORDER BY seq DESC LIMIT ?

-- name: scan_ready
SELECT band, ord, seq FROM ready WHERE lane = ? AND (band, ord, seq) > (?, ?, ?) ORDER BY band, ord, seq LIMIT ?

-- name: scan_reason
SELECT seq FROM done WHERE reason = ? AND seq < ? ORDER BY seq DESC LIMIT ?

-- name: scan_run
SELECT seq FROM job WHERE run = ? AND seq < ? ORDER BY seq DESC LIMIT ?

-- name: scan_run_final
-- Ended jobs of a run: of a large run that has just begun, the newest jobs are all waiting.
SELECT j.seq FROM job j CROSS JOIN done d ON d.seq = j.seq
WHERE j.run = ? AND instr(?, d.state) > 0 AND j.seq < ? ORDER BY j.seq DESC LIMIT ?

-- name: scan_unfinished
SELECT seq FROM job WHERE seq < ? AND NOT EXISTS (SELECT 1 FROM done WHERE done.seq = job.seq)
ORDER BY seq DESC LIMIT ?

-- name: scan_unhappy
SELECT seq FROM done INDEXED BY done_unhappy WHERE state = ? AND state <> 'completed' AND seq < ? ORDER BY seq DESC LIMIT ?

-- name: waiting_in_lane
SELECT seq FROM held WHERE cause = ? AND lane = ? ORDER BY band, ord, seq LIMIT ?

-- name: waiting_lanes
-- The lanes in which jobs wait for a resource. The recursion skips from lane to lane, because there may be very many jobs.
WITH RECURSIVE lanes (lane) AS (
    SELECT min(lane) FROM held WHERE cause = ?1
    UNION ALL
    SELECT (SELECT min(lane) FROM held WHERE cause = ?1 AND lane > lanes.lane) FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane IS NOT NULL
