-- The wall time of the latest start by a rate, as leases keep it in `started`: a lease that was never used gives its start
-- back if no job has started later.
ALTER TABLE daybreak.gauge ADD COLUMN IF NOT EXISTS taken_at bigint NOT NULL DEFAULT 0;
