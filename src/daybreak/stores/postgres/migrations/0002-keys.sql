-- An idempotency key whose job was purged is spent until `dropped`; then it is free. `at` is when it was submitted, where
-- that is not when its job was. Programs of version 1 wrote the time of the purge: what they dropped is free at once.
ALTER TABLE daybreak.idem ADD COLUMN IF NOT EXISTS at bigint;
