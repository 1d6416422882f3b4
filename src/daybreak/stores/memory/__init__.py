"""The memory store: the specification with which every other store is compared, and a store for tests.

store           the seam on top of the ledger
ledger          all transitions. Its parts: book (the data, and the small moves), accept (insert, adopt), resource_queue
                (waiting for resources), lease (claim, extend, reap, settle, time), amend (changes by people)
entry           one job; ready: queued jobs in rank order; timeline: jobs by instant; counts: totals
"""

from daybreak.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
