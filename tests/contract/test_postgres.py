"""The contract on a PostgreSQL server. Its clock is not the tests', so those of two clocks are not for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from daybreak.testing import StoreContract

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'daybreak[postgres]'")
sys.path.append(str(Path(__file__).parents[1] / "stores" / "postgres"))

from postgres_servers import URL, empty, schema_for_tests, with_schema

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
