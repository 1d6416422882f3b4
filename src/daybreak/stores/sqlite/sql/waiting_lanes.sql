-- The lanes in which jobs wait for a resource, found by skipping from one to the next: there may be very many jobs.
WITH RECURSIVE lanes (lane) AS (
    SELECT min(lane) FROM held WHERE cause = ?1
    UNION ALL
    SELECT (SELECT min(lane) FROM held WHERE cause = ?1 AND lane > lanes.lane) FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane IS NOT NULL
