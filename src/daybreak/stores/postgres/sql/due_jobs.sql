SELECT d.seq FROM daybreak.delayed d WHERE d.clock = %b::smallint AND d.due <= %b::bigint ORDER BY d.due, d.seq LIMIT %b::bigint
FOR UPDATE SKIP LOCKED
