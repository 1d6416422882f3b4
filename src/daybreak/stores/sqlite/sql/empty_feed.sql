-- The newest row stays, without its events, so that a pos is never given twice.
UPDATE feed SET lines = x'' WHERE pos <= ?
