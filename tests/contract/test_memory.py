from __future__ import annotations

import pytest

from daybreak.stores.memory import MemoryStore
from daybreak.testing import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    async def store(self, clock):
        async with MemoryStore(clock) as store:
            yield store
