"""The memory store: the specification that every other store is proven equal to, and a store for tests."""

from daybreak.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
