-- Leases that are to be extended, in the order in which everyone locks them.
SELECT l.seq, l.fence, l.n, l.worker, l.suspending, l.cancelling IS NOT NULL, l.carry, j.id
FROM daybreak.lease l CROSS JOIN LATERAL (SELECT j.id FROM daybreak.job j WHERE j.seq = l.seq OFFSET 0) j
WHERE l.seq = ANY (%b::bigint[]) ORDER BY l.seq FOR UPDATE OF l
