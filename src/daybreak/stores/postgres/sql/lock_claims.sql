-- Until the end nobody claims: a claim locks no queue that it saw without a limit.
SELECT pg_advisory_xact_lock(4473428, hashtext('daybreak.ready'))
