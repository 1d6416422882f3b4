-- Gauges of resources, and the jobs that wait for them.

-- name: all_usage
SELECT known.name, coalesce(g.used, 0), (SELECT count(*) FROM held WHERE cause = known.name), coalesce(g.shut_until, 0)
FROM (
    SELECT name FROM record WHERE kind = 'resource'
    UNION SELECT name FROM gauge WHERE used <> 0 OR shut_until <> 0
    -- jobs that wait for the result of their flight wait for no resource
    UNION SELECT DISTINCT cause FROM held WHERE cause < 'flight ' OR cause >= 'flight!'
) AS known LEFT JOIN gauge g ON g.name = known.name
WHERE ?1 IS NULL OR known.name = ?1
ORDER BY known.name

-- name: gauges_to_look_at
SELECT name FROM gauge WHERE look <= ? ORDER BY look, name LIMIT ?

-- name: load_gauge
SELECT used, tat, shut_until, look, kept_seq, kept_priority, kept_slots, fence, sparing_until, credit, spare_at,
       taken_at
FROM gauge WHERE name = ?

-- name: read_state
-- Values that change with nearly every commit; the number of lanes, which only grows; and the revision of the latest record:
-- while it is the same, no settings have changed.
SELECT
    max(coalesce((SELECT max(seq) FROM job), 0), coalesce((SELECT value FROM meta WHERE name = 'seq'), 0)),
    coalesce((SELECT max(id) FROM job), ''),
    (SELECT coalesce(max(pos), 0) FROM feed),
    (SELECT coalesce(max(id), 0) FROM lane),
    (SELECT value FROM meta WHERE name = 'revision')

-- name: put_gauge
INSERT OR REPLACE INTO gauge (
    name, used, tat, shut_until, look, kept_seq, kept_priority, kept_slots, fence, sparing_until, credit, spare_at,
    taken_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
