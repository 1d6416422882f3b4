-- One record, whatever was there. Its revision is drawn when its name is ours alone: see lock_names.sql.
WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(%b::integer, hashtext(%b::text)))
INSERT INTO daybreak.record (kind, name, revision, value)
SELECT %b::text, %b::text, nextval('daybreak.revision'), %b::bytea FROM alone
ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, value = excluded.value
RETURNING revision
