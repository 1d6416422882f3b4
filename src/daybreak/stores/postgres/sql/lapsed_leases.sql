-- What another reaper takes over at this moment is his.
SELECT l.seq FROM daybreak.lease l WHERE l.until <= %b::bigint AND l.term <= %b::bigint ORDER BY l.until, l.seq LIMIT %b::bigint
FOR UPDATE SKIP LOCKED
