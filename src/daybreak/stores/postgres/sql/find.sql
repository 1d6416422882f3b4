-- Pages of jobs, counts and positions; each statement reads one index.

-- name: ahead_among_waiting
SELECT count(*) FROM (
    SELECT 1 FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
        SELECT 1 FROM daybreak.held h
        WHERE h.cause = %b::text AND h.lane = a.lane
          AND (h.band, h.ord, h.seq) < (%b::smallint, %b::bigint, %b::bigint) LIMIT %b::bigint) t
    LIMIT %b::bigint) x

-- name: ahead_in_lanes
SELECT count(*) FROM (
    SELECT 1 FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
        SELECT 1 FROM daybreak.ready r
        WHERE r.lane = a.lane AND (r.band, r.ord, r.seq) < (%b::smallint, %b::bigint, %b::bigint) LIMIT %b::bigint) t
    LIMIT %b::bigint) x

-- name: count_owner
-- As count_run.
SELECT a.queue, a.task, a.version, j.priority,
       CASE WHEN d.seq IS NOT NULL THEN d.state WHEN h.seq IS NOT NULL THEN h.state WHEN l.seq IS NOT NULL THEN 'running'
            WHEN t.seq IS NOT NULL THEN 'scheduled' ELSE 'queued' END AS state,
       count(*)
FROM daybreak.job j JOIN daybreak.lane a ON a.id = j.lane
LEFT JOIN daybreak.done d ON d.seq = j.seq LEFT JOIN daybreak.held h ON h.seq = j.seq
LEFT JOIN daybreak.lease l ON l.seq = j.seq LEFT JOIN daybreak.delayed t ON t.seq = j.seq
WHERE j.owner = %b::text AND (%b::text IS NULL OR d.reason = %b::text)
GROUP BY 1, 2, 3, 4, 5

-- name: count_run
-- The jobs of a run by lane, priority and state. A job that is in no other table is in `ready`.
SELECT a.queue, a.task, a.version, j.priority,
       CASE WHEN d.seq IS NOT NULL THEN d.state WHEN h.seq IS NOT NULL THEN h.state WHEN l.seq IS NOT NULL THEN 'running'
            WHEN t.seq IS NOT NULL THEN 'scheduled' ELSE 'queued' END AS state,
       count(*)
FROM daybreak.job j JOIN daybreak.lane a ON a.id = j.lane
LEFT JOIN daybreak.done d ON d.seq = j.seq LEFT JOIN daybreak.held h ON h.seq = j.seq
LEFT JOIN daybreak.lease l ON l.seq = j.seq LEFT JOIN daybreak.delayed t ON t.seq = j.seq
WHERE j.run = %b::text AND (%b::text IS NULL OR d.reason = %b::text)
GROUP BY 1, 2, 3, 4, 5

-- name: last_in_lanes
-- The last in rank of the queued and blocked jobs.
SELECT j.seq, j.priority FROM (
    SELECT t.* FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
        (SELECT r.band, r.ord, r.seq FROM daybreak.ready r WHERE r.lane = a.lane
         ORDER BY r.band DESC, r.ord DESC, r.seq DESC LIMIT 1)
        UNION ALL
        (SELECT h.band, h.ord, h.seq FROM daybreak.held h WHERE h.lane = a.lane AND h.cause IS NOT NULL
         ORDER BY h.band DESC, h.ord DESC, h.seq DESC LIMIT 1)) t
    ORDER BY t.band DESC, t.ord DESC, t.seq DESC LIMIT 1) t
CROSS JOIN LATERAL (SELECT j.seq, j.priority FROM daybreak.job j WHERE j.seq = t.seq OFFSET 0) j

-- name: last_waiting_in_lanes
-- The last in rank of the jobs that wait for a resource.
SELECT j.seq, j.priority FROM (
    SELECT t.* FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
        SELECT h.band, h.ord, h.seq FROM daybreak.held h WHERE h.cause = %b::text AND h.lane = a.lane
        ORDER BY h.band DESC, h.ord DESC, h.seq DESC LIMIT 1) t
    ORDER BY t.band DESC, t.ord DESC, t.seq DESC LIMIT 1) t
CROSS JOIN LATERAL (SELECT j.seq, j.priority FROM daybreak.job j WHERE j.seq = t.seq OFFSET 0) j

-- name: options_of
SELECT j.seq, j.options FROM unnest(%b::bigint[]) AS a(seq)
CROSS JOIN LATERAL (SELECT j.seq, j.options FROM daybreak.job j WHERE j.seq = a.seq OFFSET 0) j

-- name: scan_delayed
SELECT t.due, t.seq FROM (VALUES (0::smallint), (1::smallint)) AS a(clock) CROSS JOIN LATERAL (
    SELECT d.due, d.seq FROM daybreak.delayed d WHERE d.clock = a.clock AND (d.due, d.seq) > (%b::bigint, %b::bigint)
    ORDER BY d.due, d.seq LIMIT %b::bigint) t
ORDER BY t.due, t.seq LIMIT %b::bigint

-- name: scan_done
SELECT t.seq FROM daybreak.done t WHERE t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_held
SELECT t.seq FROM daybreak.held t WHERE t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_jobs
SELECT t.seq FROM daybreak.job t WHERE t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_key
SELECT t.seq FROM daybreak.idem i JOIN daybreak.job t ON t.id = i.id WHERE i.key = %b::text AND t.seq < %b::bigint LIMIT %b::bigint

-- name: scan_lanes
SELECT t.seq FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
    SELECT j.seq FROM daybreak.job j WHERE j.lane = a.lane AND j.seq < %b::bigint ORDER BY j.seq DESC LIMIT %b::bigint) t
ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_lanes_unfinished
SELECT t.seq FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
    SELECT j.seq FROM daybreak.job j
    WHERE j.lane = a.lane AND j.seq < %b::bigint AND NOT EXISTS (SELECT 1 FROM daybreak.done d WHERE d.seq = j.seq)
    ORDER BY j.seq DESC LIMIT %b::bigint) t
ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_lease
SELECT t.seq FROM daybreak.lease t WHERE t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_owner
SELECT t.seq FROM daybreak.job t WHERE t.owner = %b::text AND t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_ready
SELECT t.band, t.ord, t.seq FROM unnest(%b::integer[]) AS a(lane) CROSS JOIN LATERAL (
    SELECT r.band, r.ord, r.seq FROM daybreak.ready r
    WHERE r.lane = a.lane AND (r.band, r.ord, r.seq) > (%b::smallint, %b::bigint, %b::bigint)
    ORDER BY r.band, r.ord, r.seq LIMIT %b::bigint) t
ORDER BY t.band, t.ord, t.seq LIMIT %b::bigint

-- name: scan_reason
SELECT t.seq FROM daybreak.done t WHERE t.reason = %b::text AND t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_run
SELECT t.seq FROM daybreak.job t WHERE t.run = %b::text AND t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_run_final
-- Ended jobs of a run: of a large run that has just begun, the newest jobs are all waiting.
SELECT t.seq FROM daybreak.job t JOIN daybreak.done d ON d.seq = t.seq
WHERE t.run = %b::text AND d.state = ANY (%b::text[]) AND t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: scan_unfinished
SELECT j.seq FROM daybreak.job j WHERE j.seq < %b::bigint AND NOT EXISTS (SELECT 1 FROM daybreak.done d WHERE d.seq = j.seq)
ORDER BY j.seq DESC LIMIT %b::bigint

-- name: scan_unsuccessful
SELECT t.seq FROM daybreak.done t WHERE t.state = %b::text AND t.state <> 'completed' AND t.seq < %b::bigint ORDER BY t.seq DESC LIMIT %b::bigint

-- name: waiting_in_lanes
-- The first waiting jobs of every lane for a resource, in rank order. Jumps from lane to lane in the index, because very
-- many jobs may wait.
WITH RECURSIVE lanes AS (
    SELECT min(h.lane) AS lane FROM daybreak.held h WHERE h.cause = %(cause)b::text
    UNION ALL
    SELECT (SELECT min(h.lane) FROM daybreak.held h WHERE h.cause = %(cause)b::text AND h.lane > l.lane)
    FROM lanes l WHERE l.lane IS NOT NULL)
SELECT w.lane, w.seq FROM lanes l CROSS JOIN LATERAL (
    SELECT h.lane, h.band, h.ord, h.seq FROM daybreak.held h WHERE h.cause = %(cause)b::text AND h.lane = l.lane
    ORDER BY h.band, h.ord, h.seq LIMIT %(limit)b::bigint) w
ORDER BY w.lane, w.band, w.ord, w.seq
