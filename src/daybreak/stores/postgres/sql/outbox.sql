-- Jobs submitted inside other transactions, waiting to be accepted.

-- name: append_incoming
WITH appended AS (
    INSERT INTO daybreak.incoming (spec)
    SELECT decode(p.spec, 'hex') FROM unnest(string_to_array(CAST({} AS text), ',')) WITH ORDINALITY p(spec, o) ORDER BY p.o
)
SELECT pg_notify(CAST({} AS text), t.topic) FROM unnest(string_to_array(CAST({} AS text), chr(31))) t(topic)

-- name: has_incoming
SELECT EXISTS (SELECT 1 FROM daybreak.incoming)

-- name: set_aside
INSERT INTO daybreak.aside (n, spec, why) VALUES (%b::bigint, %b::bytea, %b::text) ON CONFLICT (n) DO NOTHING

-- name: take_incoming
DELETE FROM daybreak.incoming i WHERE i.n IN (
    SELECT n.n FROM daybreak.incoming n ORDER BY n.n LIMIT %b::bigint FOR UPDATE SKIP LOCKED)
RETURNING i.n, i.spec
