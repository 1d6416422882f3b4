"""A server for the tests: the one of DAYBREAK_TEST_POSTGRES, or what listens on this machine."""

from __future__ import annotations

import contextlib
import itertools
import os
from datetime import timedelta

import psycopg
import pytest

from daybreak.testing.clock import HandClock

URL = os.environ.get("DAYBREAK_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
DROPS = 5
_numbers = itertools.count(1)
_why: list[str] = []


def need_server() -> str:
    """The URL, where a server answers; else the test is skipped, or fails where it must not be missing."""
    if not _why:
        try:
            psycopg.connect(URL, connect_timeout=3).close()
            _why.append("")
        except psycopg.Error as error:
            _why.append(f"no PostgreSQL at {URL.rpartition('@')[2]}: {error}")
    if _why[0]:
        refuse(_why[0])
    return URL


def refuse(why: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def new_schema() -> str:
    return f"daybreak_test_{os.getpid()}_{next(_numbers)}"


def with_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


def drop(schema: str, url: str = URL) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET client_min_messages = warning")
        for _ in range(DROPS):  # what a test left to be answered may still be at it, and take locks in another order
            with contextlib.suppress(psycopg.errors.DeadlockDetected):
                db.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
                return
    raise AssertionError(f"{schema} is still in use")


def empty(schema: str) -> None:
    """As if it were new, but quicker than creating it."""
    with psycopg.connect(URL, autocommit=True) as db:
        tables = [name for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))]
        if not tables:
            return
        emptied = [f'DELETE FROM "{schema}"."{name}"' for name in tables if name not in ("meta", "waiting")]
        emptied.append(f"""DELETE FROM "{schema}".meta WHERE name NOT IN ('version', 'needs')""")
        db.execute(";".join(emptied))  # a TRUNCATE of so many tables takes longer than most tests
        for sequence in ("seq", "revision", "pos"):
            db.execute(f'ALTER SEQUENCE "{schema}".{sequence} RESTART')


class ServedClock(HandClock):
    """A clock moved by hand that is the server's, too: sessions that come by `url` find another clock_timestamp()."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._schema = f"{schema}_clock"
        self._db = psycopg.connect(URL, autocommit=True)
        self._db.execute(f'CREATE SCHEMA "{self._schema}"')
        self._db.execute(f'CREATE TABLE "{self._schema}".shown AS SELECT {self.wall()}::bigint AS micros')
        self._db.execute(
            f'CREATE FUNCTION "{self._schema}".clock_timestamp() RETURNS timestamptz LANGUAGE sql AS '
            f"""$$ SELECT 'epoch'::timestamptz + micros * interval '1 microsecond' FROM "{self._schema}".shown $$"""
        )
        self.is_read = False

    def url(self, url: str) -> str:
        return f"{url}&options=-csearch_path%3D{self._schema},pg_catalog"

    def advance(self, by: object) -> None:
        super().advance(by)
        self._show()

    def jump(self, by: timedelta) -> None:
        super().jump(by)
        self._show()

    def _show(self) -> None:
        self._db.execute(f'UPDATE "{self._schema}".shown SET micros = %s', (self._wall,))

    def close(self) -> None:
        self._db.execute("SET client_min_messages = warning")
        self._db.execute(f'DROP SCHEMA "{self._schema}" CASCADE')
        self._db.close()


@contextlib.contextmanager
def served_clock(schema: str):
    need_server()
    clock = ServedClock(schema)
    try:
        yield clock
    finally:
        clock.close()


@contextlib.contextmanager
def schema_for_tests():
    """A schema for a whole file of tests, dropped afterwards."""
    need_server()
    schema = new_schema()
    try:
        yield schema
    finally:
        drop(schema)
