"""The SQLite store, the default: one file, any number of processes, nothing to set up.

store           the seam, in front of a writer thread (or inline, for tests on virtual time)
engine          one connection; all requests that wait share one transaction: group commit
writer, reader  the thread that writes; the connection that reads
write_lock      which process may write; wake: how processes wake one another; side_files: their files
ledger          what a transaction has read and changed; insert, claim, settle, amend, pass_time, purge, adopt: its
                operations
job_moves       moves a job from one table to another; resource_queue, gauge_rows: which jobs wait for resources
connections     an open file with its connections and threads; wal: the write-ahead log; forks: what a child must close
schema          checks and migrations; sql/: the statements, one file for each table or purpose
"""

from daybreak.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
