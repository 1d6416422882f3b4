DELETE FROM idem WHERE key IN (SELECT key FROM idem WHERE dropped <= ? ORDER BY dropped, key LIMIT ?)
