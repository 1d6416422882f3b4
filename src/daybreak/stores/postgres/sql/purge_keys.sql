-- What was dropped is asked again of the row itself: a submission may have taken the key over while we waited for it.
DELETE FROM daybreak.idem i WHERE i.dropped <= %b::bigint AND i.key IN (
    SELECT k.key FROM daybreak.idem k WHERE k.dropped <= %b::bigint ORDER BY k.dropped, k.key LIMIT %b::bigint)
