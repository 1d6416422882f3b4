-- Beside all who claim, and not while a queue is being set.
SELECT pg_advisory_xact_lock_shared(4473428, hashtext('daybreak.ready'))
