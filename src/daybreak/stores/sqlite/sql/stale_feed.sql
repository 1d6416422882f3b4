-- The newest row stays for ever, so that a pos is never given twice.
SELECT pos, lines FROM feed WHERE pos < (SELECT max(pos) FROM feed) AND at <= ? ORDER BY pos LIMIT ?
