WITH appended AS (
    INSERT INTO daybreak.incoming (spec)
    SELECT decode(p.spec, 'hex') FROM unnest(string_to_array(CAST({} AS text), ',')) WITH ORDINALITY p(spec, o) ORDER BY p.o
)
SELECT pg_notify(CAST({} AS text), t.topic) FROM unnest(string_to_array(CAST({} AS text), chr(31))) t(topic)
