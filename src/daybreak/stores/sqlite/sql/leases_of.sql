-- The leases of a batch, given as a JSON list of seqs: one statement instead of one a job.
SELECT seq, lane, priority, uniq, fence, n, worker, started, suspending, cancelling, carry, history, needs
FROM lease WHERE seq IN (SELECT value FROM json_each(?))
