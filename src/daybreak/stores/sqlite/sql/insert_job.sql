INSERT INTO job (seq, id, lane, band, ord, priority, asked, created, arrived, expires, by, run, owner, key, uniq, options, extra, args)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
