-- Whether the holder of a lease runs it where nothing else could be to blame for its death.
-- Programs of version 1 name their columns: they claim, extend and take over beside it, and never say so.
ALTER TABLE lease ADD COLUMN alone INTEGER NOT NULL DEFAULT 0;
