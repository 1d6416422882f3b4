"""The SQLite store, the default: one file, any number of processes, nothing to set up.

store           the seam, in front of a writer thread (or inline, for tests on virtual time)
engine          one connection; all requests that wait share one transaction: group commit
writer, reader  the thread that writes; the connection that reads
write_lock      which process may write, between processes; wake: how they wake one another
ledger          what a transaction knows and has changed; insert, claim, settle, amend, pass_time, purge, adopt: its
                operations
job_moves       a job leaves one table and enters another; resource_queue, gauge_rows: who waits for resources
connections     an open file with its connections and threads; wal: the write-ahead log; forks: what a fork must drop
sql/            the statements, one file for each table or purpose
"""

from daybreak.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
