"""Waiting processes are woken: no notice is missed, and no topic can prevent the notices of others."""

from __future__ import annotations

import threading
from datetime import timedelta

import psycopg
import pytest

from daybreak.store.protocol import job_topic, work_topic
from daybreak.stores.postgres import PostgresStore
from daybreak.stores.postgres import wake as waking
from daybreak.testing.contract.builders import spec

A_WHILE = timedelta(seconds=1)
LONG = timedelta(seconds=60)


@pytest.fixture
async def other(url, monkeypatch):
    """Another process, so to speak, without the slow poll."""
    monkeypatch.setattr(waking, "SLOW_POLL", 3600.0)
    async with PostgresStore(url) as other:
        yield other


async def rested(store, topic):
    """A watch that is registered on the server and has no pending wake-up."""
    watch = store.watch([topic])
    while await watch.wait(A_WHILE):
        pass
    return watch


async def test_a_notice_that_comes_with_the_answer_to_something_else_is_received(store, other, monkeypatch):
    watch = await rested(other, work_topic("default"))
    wake, asking = other._opened.wake, threading.Event()

    def send(db):
        wake._changed.clear()
        asking.set()
        db.execute("SELECT pg_sleep(0.5)")  # its own query is running when the notice arrives
        return True

    monkeypatch.setattr(wake, "_send", send)
    wake.notify({"anything"})
    assert asking.wait(60)
    monkeypatch.undo()
    monkeypatch.setattr(waking, "SLOW_POLL", 3600.0)
    await store.insert([spec()])
    assert await watch.wait(LONG)


@pytest.mark.parametrize("name", ["\udcff", "a\0b"], ids=["half a pair", "NUL"])
async def test_a_topic_that_the_server_cannot_store_prevents_no_other_notice(store, other, name):
    odd = other.watch([job_topic(name)])
    watch = await rested(other, work_topic("default"))
    await store.insert([spec()])
    assert await watch.wait(LONG)
    odd.close()


async def test_a_notice_that_failed_is_sent_on_the_next_connection(store, other, monkeypatch):
    watch = await rested(other, "a topic")
    wake, cut = store._opened.wake, []
    notify = wake._sql.notify

    class Cut:
        """The statements, but the first NOTIFY ends its connection."""

        def __getattr__(self, name):
            if name == "notify" and not cut:
                cut.append(name)
                return "SELECT pg_terminate_backend(pg_backend_pid()), %s, %b, %s"
            return notify if name == "notify" else getattr(sql, name)

    sql = wake._sql
    monkeypatch.setattr(wake, "_sql", Cut())
    wake.notify({"a topic"})
    assert await watch.wait(LONG)
    assert cut


async def test_a_channel_has_a_name_that_the_server_accepts(fresh_schema, url):
    schema = "é" * 30
    async with PostgresStore(url, schema=schema) as store:
        try:
            watch = await rested(store, work_topic("default"))
            async with PostgresStore(url, schema=schema) as elsewhere:
                await elsewhere.insert([spec()])
            assert await watch.wait(LONG)
        finally:
            with psycopg.connect(store.address.conninfo, autocommit=True) as db:
                db.execute(f'DROP SCHEMA "{schema}" CASCADE')
