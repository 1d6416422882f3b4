from __future__ import annotations

import pytest
from sqlite_programs import SqlitePrograms

from daybreak.stores.sqlite import SqliteStore
from daybreak.testing import StoreContract


class TestSqlite(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path, clock):
        async with SqliteStore(tmp_path / "jobs.db", world=clock) as store:
            yield store

    @pytest.fixture
    def programs(self, tmp_path, clock):
        return SqlitePrograms(tmp_path / "jobs.db", world=clock)


class TestSqliteInline(StoreContract):
    """Without its thread, as the simulation runs it."""

    @pytest.fixture
    async def store(self, tmp_path, clock):
        async with SqliteStore(tmp_path / "jobs.db", world=clock, threaded=False) as store:
            yield store

    @pytest.fixture
    def programs(self, tmp_path, clock):
        return SqlitePrograms(tmp_path / "jobs.db", world=clock, threaded=False)
