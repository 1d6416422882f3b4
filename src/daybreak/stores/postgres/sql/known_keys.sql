SELECT i.key, i.digest, i.id, j.seq IS NULL FROM daybreak.idem i LEFT JOIN daybreak.job j ON j.id = i.id
WHERE i.key = ANY (%b::text[])
  AND (j.seq IS NOT NULL OR i.dropped > coalesce(%b::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
