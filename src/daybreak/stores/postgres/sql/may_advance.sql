SELECT t.now,
       EXISTS (SELECT 1 FROM daybreak.incoming)
       OR EXISTS (SELECT 1 FROM daybreak.delayed d WHERE d.clock IN (0, 1) AND d.due <= t.now)
       OR EXISTS (SELECT 1 FROM daybreak.job j WHERE j.expires <= t.now),
       (SELECT min(d.due) FROM daybreak.delayed d WHERE d.clock IN (0, 1))
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) t
