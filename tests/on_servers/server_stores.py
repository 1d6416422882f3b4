"""Stores on servers, each in its own schema or namespace that is deleted afterwards."""

from __future__ import annotations

import contextlib

import pytest


@contextlib.contextmanager
def place_on(kind: str):
    """The URL of an empty store."""
    if kind == "postgres":
        pytest.importorskip("psycopg")
        from postgres_servers import URL, drop, need_server, new_schema, with_schema

        need_server()
        schema = new_schema()
        try:
            yield with_schema(URL, schema)
        finally:
            drop(schema)
    else:
        pytest.importorskip("hiredis")
        from redis_servers import REDIS, fresh, need_redis

        need_redis()
        with fresh() as namespace:
            yield f"{REDIS}/?namespace={namespace}"
