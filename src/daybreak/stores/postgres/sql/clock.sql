-- The server's clock: its offset, and the correction of a jump.

-- name: correct_clock
-- The server's clock jumped: change the offset so that steady time continues as if it had not. Only if the offset is still
-- the one under which the jump was seen, so that only one of all processes that saw the jump corrects it. A jump ahead is
-- refused if other processes have reported (report_even_clock) that the clock ran evenly, unless the time that their
-- report does not cover is long enough for the jump.
WITH request AS (
    SELECT %b::bigint AS expected, %b::bigint AS corrected, %b::bigint AS since, %b::bigint AS seen
), reported AS (
    SELECT split_part(m.value, ':', 1)::bigint AS since, split_part(m.value, ':', 2)::bigint AS seen
    FROM daybreak.meta m WHERE m.name = 'even'
), done AS (
    INSERT INTO daybreak.meta AS m (name, value)
    SELECT 'clock', s.corrected::text FROM request s
    WHERE NOT EXISTS (SELECT 1 FROM reported e WHERE s.corrected - s.expected
                          > greatest(0, e.since - s.since) + greatest(0, s.seen - e.seen) + 5000000)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE m.value = (SELECT s.expected::text FROM request s)
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
-- The server's time, and the offset that is subtracted from it to get the store's steady time. Also the schema version and
-- the version of the oldest program that can work on it: another program may have upgraded the schema meanwhile.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       coalesce((SELECT m.value::bigint FROM daybreak.meta m WHERE m.name = 'clock'), 0),
       (SELECT m.value::integer FROM daybreak.meta m WHERE m.name = 'version'),
       (SELECT m.value::integer FROM daybreak.meta m WHERE m.name = 'needs')

-- name: report_even_clock
-- This process has seen the server's clock run evenly from `since` until `now`, both in steady time. An earlier report
-- that overlaps is merged with it. Written at most once in ten seconds.
INSERT INTO daybreak.meta AS m (name, value) VALUES ('even', %(since)s::text || ':' || %(now)s::text)
ON CONFLICT (name) DO UPDATE SET value =
    CASE WHEN %(since)s::bigint <= split_part(m.value, ':', 2)::bigint AND split_part(m.value, ':', 1)::bigint <= %(now)s::bigint
         THEN least(%(since)s::bigint, split_part(m.value, ':', 1)::bigint) || ':'
              || greatest(%(now)s::bigint, split_part(m.value, ':', 2)::bigint)
         ELSE excluded.value END
WHERE abs(split_part(m.value, ':', 2)::bigint - %(now)s::bigint) > 10000000
