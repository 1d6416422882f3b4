"""The contract on a PostgreSQL server. The tests that move the server's clock have their own class: see ServedClock."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from daybreak.testing import StoreContract
from daybreak.testing.contract.time import TwoClocks

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'daybreak[postgres]'")
sys.path.append(str(Path(__file__).parents[1] / "stores" / "postgres"))

from postgres_servers import URL, drop, empty, schema_for_tests, served_clock, with_schema

from daybreak.stores.postgres import PostgresStore
from daybreak.stores.postgres.schema_version import CURRENT, SchemaVersion

NEXT_VERSION = """
ALTER TABLE daybreak.job ADD COLUMN synthetic bigint;
ALTER TABLE daybreak.lease ADD COLUMN synthetic bigint NOT NULL DEFAULT 0;
CREATE TABLE daybreak.synthetic (seq bigint PRIMARY KEY);
"""


class PostgresPrograms:
    """Programs of today's schema and of a synthetic next one in one database."""

    def __init__(self, schema):
        self._url = with_schema(URL, schema)

    def current(self):
        return PostgresStore(self._url)

    def newer(self, *, serves_older):
        store = self.current()
        known = SchemaVersion((*CURRENT.scripts, (NEXT_VERSION,)), CURRENT.number + (not serves_older))
        store.address = dataclasses.replace(store.address, known=known)
        return store

    async def look_again(self, store):
        """A running program reads the version together with the server's clock, every ten seconds."""
        store._opened.clock._read_at = None


@pytest.fixture(scope="module")
def schema():
    with schema_for_tests() as schema:
        yield schema


class TestPostgres(StoreContract):
    @pytest.fixture
    async def store(self, schema):
        empty(schema)
        async with PostgresStore(with_schema(URL, schema)) as store:
            yield store

    @pytest.fixture
    def programs(self, schema, store):
        yield PostgresPrograms(schema)
        drop(schema)  # the next test begins with today's version again


class TestPostgresTwoClocks(TwoClocks):
    """The server's clock and the process's clock are moved by hand."""

    @pytest.fixture
    def clock(self, schema):
        with served_clock(schema) as clock:
            yield clock

    @pytest.fixture
    async def store(self, schema, clock):
        empty(schema)
        async with PostgresStore(clock.url(with_schema(URL, schema)), world=clock) as store:
            yield store
