-- The server's clock: its offset, and who corrects it after a jump.

-- name: correct_clock
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

-- name: read_clock
-- The server's time, and what is to be subtracted for the store's steady time.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       coalesce((SELECT m.value::bigint FROM daybreak.meta m WHERE m.name = 'clock'), 0)

-- name: testify
-- Whoever says this has seen the server's clock run evenly since then and until now, both in steady time. What was
-- testified without a gap before is kept with it. Seldom: once in ten seconds is enough.
INSERT INTO daybreak.meta AS m (name, value) VALUES ('even', %(since)s::text || ':' || %(now)s::text)
ON CONFLICT (name) DO UPDATE SET value =
    CASE WHEN %(since)s::bigint <= split_part(m.value, ':', 2)::bigint AND split_part(m.value, ':', 1)::bigint <= %(now)s::bigint
         THEN least(%(since)s::bigint, split_part(m.value, ':', 1)::bigint) || ':'
              || greatest(%(now)s::bigint, split_part(m.value, ':', 2)::bigint)
         ELSE excluded.value END
WHERE abs(split_part(m.value, ':', 2)::bigint - %(now)s::bigint) > 10000000
