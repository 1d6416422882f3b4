"""The contract on a PostgreSQL server. The tests that move the server's clock have their own class: see ServedClock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from daybreak.testing import StoreContract
from daybreak.testing.contract.time import TwoClocks

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'daybreak[postgres]'")
sys.path.append(str(Path(__file__).parents[1] / "stores" / "postgres"))

from postgres_servers import URL, empty, schema_for_tests, served_clock, with_schema

from daybreak.stores.postgres import PostgresStore


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
