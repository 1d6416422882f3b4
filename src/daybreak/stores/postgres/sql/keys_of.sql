SELECT i.key, i.digest, i.id, j.seq, i.dropped FROM daybreak.idem i LEFT JOIN daybreak.job j ON j.id = i.id
WHERE i.key = ANY (%b::text[])
