-- Claimed ahead of time: its holder has not said yet that the work begins. Programs of version 1 name their columns: what they
-- claim begins with the claim.
ALTER TABLE daybreak.lease ADD COLUMN IF NOT EXISTS ahead boolean NOT NULL DEFAULT false;
