SELECT l.seq FROM daybreak.lease l WHERE l.worker = %b::text AND l.call = %b::text ORDER BY l.seq
