"""The SQLite store, the default: one file, any number of processes, nothing to set up.

store      the seam, in front of a writer thread (or inline, for tests on virtual time)
engine     one connection, one transaction for all who wait: group commit
turn       whose turn it is to write, between processes; wake: how they wake one another
ledger     what a transaction knows and has changed; insert, claim, settle, amend, pass_time, purge: its operations
"""

from daybreak.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
