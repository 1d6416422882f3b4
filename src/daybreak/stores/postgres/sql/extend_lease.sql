UPDATE daybreak.lease l SET until = a.until, term = a.term, alone = coalesce(a.alone, l.alone), ahead = coalesce(a.ahead, l.ahead),
    progress = coalesce(a.progress, l.progress), carry = CASE WHEN a.carries THEN a.carry ELSE l.carry END,
    message = CASE WHEN a.progress IS NULL THEN l.message ELSE a.message END
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::boolean[], %b::boolean[], %b::double precision[], %b::bytea[], %b::boolean[],
            %b::bytea[]) AS a(seq, until, term, alone, ahead, progress, message, carries, carry)
WHERE l.seq = a.seq
