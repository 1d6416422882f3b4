"""A process vacuums the tables from which it has deleted many rows."""

from __future__ import annotations

import asyncio
import secrets
import threading
from datetime import timedelta

import psycopg
import pytest

from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.postgres import PostgresStore, vacuum
from daybreak.stores.postgres.connection import Connection
from daybreak.testing.contract.builders import spec

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(("table", "delay"), [("ready", None), ("delayed", timedelta(microseconds=1))])
async def test_dead_rows_are_vacuumed(store, monkeypatch, table, delay):
    monkeypatch.setattr(vacuum, "VACUUM_AFTER", 500)
    monkeypatch.setattr(vacuum, "MIN_DEAD_ROWS", 100)
    before = _vacuum_count(store, table)
    async with asyncio.timeout(60):  # the server's statistics lag by a second
        while _vacuum_count(store, table) == before:
            await store.insert([spec(delay=delay) for _ in range(300)])
            while (await store.advance()).again:
                pass
            await store.exchange(Exchange(claim=Claim(worker="w", lease_for=HOUR, limit=300)))


async def test_few_dead_rows_are_not_vacuumed(store, monkeypatch):
    monkeypatch.setattr(vacuum, "MIN_DEAD_ROWS", 1)
    before = _vacuum_count(store, "ready")
    for _ in range(5):
        await _pass(store, 300)
        await asyncio.sleep(0.3)
    assert _vacuum_count(store, "ready") == before


async def test_jobs_that_one_exchange_inserts_and_claims_count_too(store, monkeypatch):
    monkeypatch.setattr(vacuum, "VACUUM_AFTER", 500)
    monkeypatch.setattr(vacuum, "MIN_DEAD_ROWS", 100)
    before = _vacuum_count(store, "ready")
    async with asyncio.timeout(60):
        while _vacuum_count(store, "ready") == before:
            claim = Claim(worker="w", lease_for=HOUR, limit=100)
            await store.exchange(Exchange(insert=[spec() for _ in range(100)], claim=claim))


async def test_a_store_that_closes_does_not_wait_for_a_vacuum(url, monkeypatch):
    monkeypatch.setattr(vacuum, "VACUUM_AFTER", 1)
    under_way, at_it = threading.Event(), []

    def hang(connection, statement, params=()):
        db = connection._ensure_connected()
        with connection.answer_timer.running(db):
            at_it.append(db.info.backend_pid)
            under_way.set()
            connection.run("SELECT pg_sleep(300)")

    async with PostgresStore(url) as store:
        await store.insert([spec()])
        with monkeypatch.context() as broken:
            broken.setattr(Connection, "query", hang)
            store._opened._vacuum.note(1)
            assert await asyncio.to_thread(under_way.wait, 30)
        async with asyncio.timeout(30):
            await store.close()
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:  # else the server would go on sleeping
        db.execute("SELECT pg_terminate_backend(%s)", at_it)


async def test_a_failed_vacuum_disturbs_nobody_and_is_not_retried_for_a_while(store, monkeypatch):
    monkeypatch.setattr(vacuum, "VACUUM_AFTER", 100)
    tried = []

    def fail(connection, statement):
        tried.append(statement)
        raise RuntimeError

    monkeypatch.setattr(Connection, "execute", fail)
    monkeypatch.setattr(vacuum, "MIN_DEAD_ROWS", 0)
    async with asyncio.timeout(60):
        while not tried:
            await _pass(store, 300)
    seen = len(tried)
    for _ in range(10):
        await _pass(store, 300)
    assert len(tried) == seen


async def test_a_role_that_does_not_own_the_tables_leaves_them_to_autovacuum(store):
    """Its VACUUM would do nothing but write a warning to the server's log each time."""
    everything = (store.address.schema, 1, 10**9)
    guest = f"guest_{secrets.token_hex(4)}"
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:
        db.execute(f"CREATE ROLE {guest}")
        try:
            async with asyncio.timeout(60):
                while not db.execute(store._opened._sql.tables_to_vacuum, everything).fetchall():
                    await _pass(store, 300)
                    await asyncio.sleep(0.1)
            db.execute(f"SET ROLE {guest}")
            assert db.execute(store._opened._sql.tables_to_vacuum, everything).fetchall() == []
        finally:
            db.execute("RESET ROLE")
            db.execute(f"DROP ROLE {guest}")


async def _pass(store, jobs: int) -> None:
    await store.insert([spec() for _ in range(jobs)])
    await store.exchange(Exchange(claim=Claim(worker="w", lease_for=HOUR, limit=jobs)))


def _vacuum_count(store, table: str) -> int:
    with psycopg.connect(store.address.conninfo) as db:
        [(count,)] = db.execute(
            "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = %s AND relname = %s",
            (store.address.schema, table),
        ).fetchall()
    return count
