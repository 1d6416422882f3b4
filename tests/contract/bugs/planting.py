from __future__ import annotations

from daybreak.stores.memory import MemoryStore
from daybreak.stores.memory.ledger import Ledger


def planted(bug: type, clock) -> MemoryStore:
    """A store with this bug, which is a subclass of the store or of its ledger."""
    if issubclass(bug, Ledger):
        store = MemoryStore(clock)
        store._ledger = bug()
        return store
    return bug(clock)
