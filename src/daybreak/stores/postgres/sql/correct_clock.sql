-- The server's clock jumped: let steady time go on as if it had not, by another offset. Only if the offset is the one under
-- which the jump was seen, so that of all who saw it one corrects it. A jump ahead is refused if others have testified
-- (testify.sql) that the clock ran evenly, and what their testimony leaves out is too short for it.
WITH said AS (
    SELECT %b::bigint AS expected, %b::bigint AS corrected, %b::bigint AS since, %b::bigint AS seen
), testified AS (
    SELECT split_part(m.value, ':', 1)::bigint AS since, split_part(m.value, ':', 2)::bigint AS seen
    FROM daybreak.meta m WHERE m.name = 'even'
), done AS (
    INSERT INTO daybreak.meta AS m (name, value)
    SELECT 'clock', s.corrected::text FROM said s
    WHERE NOT EXISTS (SELECT 1 FROM testified e WHERE s.corrected - s.expected
                          > greatest(0, e.since - s.since) + greatest(0, s.seen - e.seen) + 5000000)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE m.value = (SELECT s.expected::text FROM said s)
    RETURNING 1
), forgotten AS (
    DELETE FROM daybreak.meta m WHERE m.name = 'even' AND EXISTS (SELECT 1 FROM done)
), noted AS (
    INSERT INTO daybreak.meta (name, value)
    SELECT 'corrected', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text FROM done
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
)
SELECT count(*) FROM done
