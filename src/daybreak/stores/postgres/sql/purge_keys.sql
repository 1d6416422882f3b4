DELETE FROM daybreak.idem i WHERE i.key IN (
    SELECT k.key FROM daybreak.idem k WHERE k.dropped <= %b::bigint ORDER BY k.dropped, k.key LIMIT %b::bigint)
