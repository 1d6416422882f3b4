from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'daybreak[postgres]'")
sys.path.append(str(Path(__file__).parent))

from postgres_proxy import Proxy
from postgres_servers import URL, empty, need_server, new_schema, schema_for_tests, with_schema

from daybreak.stores.postgres import PostgresStore


@pytest.fixture(scope="session")
def shared_schema():
    with schema_for_tests() as schema:
        yield schema


@pytest.fixture
def url(shared_schema):
    """The URL of an empty store."""
    empty(shared_schema)
    return with_schema(URL, shared_schema)


@pytest.fixture
async def store(url):
    async with PostgresStore(url) as store:
        yield store


@pytest.fixture
def fresh_schema():
    """The name of a schema that does not exist yet."""
    from postgres_servers import drop

    need_server()
    schema = new_schema()
    yield schema
    drop(schema)


@pytest.fixture
def proxy(url):
    with Proxy.to(url) as proxy:
        yield proxy
