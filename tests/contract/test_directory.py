from __future__ import annotations

import pytest

from daybreak.stores.directory import DirectoryStore
from daybreak.testing import StoreContract


class TestDirectory(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path, clock):
        async with DirectoryStore(tmp_path / "jobs", world=clock) as store:
            yield store
