"""A SQLite store as blocking callers have it."""

from __future__ import annotations

import pytest

from daybreak.client.client import Client
from daybreak.stores.sqlite import SqliteStore


@pytest.fixture
def store(portal, tmp_path):
    store = portal.run(SqliteStore(tmp_path / "jobs.db").open())
    yield store
    portal.run(store.close())


@pytest.fixture
def client(store):
    return Client(store)
