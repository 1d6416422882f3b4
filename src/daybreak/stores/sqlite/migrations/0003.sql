-- Resources: what of each is in use, and who waits for it in which order. Programs of version 2 know nothing of them, and
-- are refused from the first job on that needs one (see gauges.py).
CREATE TABLE gauge (
    name TEXT PRIMARY KEY,
    used INTEGER NOT NULL,
    tat INTEGER NOT NULL,
    shut_until INTEGER NOT NULL,
    look INTEGER,
    kept_seq INTEGER,
    kept_priority INTEGER,
    kept_slots INTEGER,
    fence INTEGER NOT NULL,
    sparing_until INTEGER NOT NULL,
    credit INTEGER NOT NULL,
    spare_at INTEGER NOT NULL,
    taken_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX gauge_look ON gauge (look) WHERE look IS NOT NULL;

ALTER TABLE lease ADD COLUMN needs BLOB;
-- Claimed ahead of time: its holder has not said yet that the work begins.
ALTER TABLE lease ADD COLUMN ahead INTEGER NOT NULL DEFAULT 0;
ALTER TABLE held ADD COLUMN lane INTEGER;
ALTER TABLE held ADD COLUMN band INTEGER;
ALTER TABLE held ADD COLUMN ord INTEGER;
DROP INDEX held_cause;
CREATE INDEX held_cause ON held (cause, lane, band, ord, seq) WHERE cause IS NOT NULL;

-- The totals of a lane and priority are one row among its tallies, so that a commit writes one row and no page more for
-- them: its state is 'totals', its n is 0, and programs of version 2 pass over it. Packed as {what: [n, took]}.
ALTER TABLE tally ADD COLUMN totals BLOB;

-- An idempotency key whose job was purged is spent until `dropped`; then it is free. `at` is when it was submitted, where
-- that is not when its job was. Programs of version 2 wrote the time of the purge: what they dropped is free at once.
ALTER TABLE idem ADD COLUMN at INTEGER;
