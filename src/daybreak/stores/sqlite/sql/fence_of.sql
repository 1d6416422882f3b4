-- The fence of a job that nobody holds: equal to a settlement's, that settlement was written before.
SELECT fence FROM done WHERE seq = ?1
UNION ALL SELECT fence FROM delayed WHERE seq = ?1
UNION ALL SELECT fence FROM held WHERE seq = ?1
UNION ALL SELECT r.fence FROM job j CROSS JOIN ready r ON r.lane = j.lane AND r.band = j.band AND r.ord = j.ord AND r.seq = j.seq
          WHERE j.seq = ?1
