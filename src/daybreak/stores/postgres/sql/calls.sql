-- Calls of the SQL functions of the plain path (plain_path.py).

-- name: call_exchange
SELECT * FROM daybreak.exchange_1(%b::bigint, %b::boolean, %b::bigint, %b::bigint, %b::bigint[], %b::integer[], %b::integer[], %b::bigint[], %b::bytea[], %b::bytea[],
    %b::bytea[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::text, %b::text, %b::text[], %b::bigint[], %b::text[], %b::integer[], %b::integer,
    %b::bigint, %b::text, %b::integer)

-- name: call_insert
SELECT i.at, i.seqs, NULL::text[]
FROM daybreak.insert_1(%b::bigint, %b::text[], %b::text[], %b::integer[], %b::smallint[], %b::bigint[],
    %b::text[], %b::text[], %b::text[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[], %b::text[], %b::text[], %b::integer[],
    %b::text[], %b::bigint, %b::bigint) i

-- name: call_insert_and_notify
-- The commit itself notifies the registered waiters; `notified` are the topics of which it did.
-- A process that registers at this very moment may not be seen here: see wake.py.
SELECT i.at, i.seqs, n.notified
FROM daybreak.insert_1(%b::bigint, %b::text[], %b::text[], %b::integer[], %b::smallint[], %b::bigint[],
    %b::text[], %b::text[], %b::text[], %b::bytea[], %b::bytea[], %b::bytea[], %b::text[], %b::text[], %b::text[], %b::integer[],
    %b::text[], %b::bigint, %b::bigint) i
CROSS JOIN LATERAL (
    SELECT array_agg(w.topic) AS notified, count(pg_notify(w.channel, w.topic)) FROM (
        SELECT DISTINCT a.channel, n.topic
        FROM (SELECT %b::text AS channel, %b::text[] AS topics, %b::text AS who) a
        JOIN daybreak.waiting n ON n.topic = ANY (a.topics) AND n.who <> a.who
        WHERE n.until > extract(epoch FROM clock_timestamp())) w) n

-- name: call_insert_one
SELECT i.at, i.seq, i.told
FROM daybreak.insert_one_1(%b::bigint, %b::text, %b::text, %b::integer, %b::smallint, %b::bigint, %b::text,
    %b::text, %b::text, %b::bytea, %b::bytea, %b::bytea, %b::text, %b::text[], %b::text, %b::text, %b::text[], %b::text, %b::bigint, %b::bigint) i

-- name: fold
SELECT daybreak.fold_1()
