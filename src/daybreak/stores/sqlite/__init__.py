"""The SQLite store, the default: one file, any number of processes, nothing to set up.

store           the seam, in front of a writer thread (or inline, for tests on virtual time)
engine          one connection; all requests that wait share one transaction: group commit
writer, reader  the thread that writes; the connection that reads
write_lock      which process may write; wake: how processes wake one another; side_files: their files
transaction     one request: the tables of the kernel (stores/kernel) in SQL; side_tables: those beside the jobs
rows            rows of the kernel as rows of the file; cache: what is known between transactions
fast_path       plain jobs without a row of the kernel for each of them; it may refuse, it may never differ
changes, commit what the requests of a transaction add to the counts and the feed, and how it is written
read            pages, counts, positions and events
connections     an open file with its connections and threads; wal: the write-ahead log; forks: what a child must close
schema          checks and migrations; sql/: the statements, one file for each table or purpose
"""

from daybreak.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
