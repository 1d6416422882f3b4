"""Closing a store closes everything, in time, whatever its server does."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from datetime import timedelta

import pytest
from redis_servers import REDIS, Proxy, fresh, need_redis

from daybreak.core.errors import StoreUnavailable
from daybreak.stores.redis import RedisStore
from daybreak.stores.redis.address import parse
from daybreak.stores.redis.blocking_client import BlockingConnection
from daybreak.stores.redis.connection import Connection
from daybreak.testing.contract.builders import jobs_of, spec

SOON = timedelta(milliseconds=200)
PATIENCE = 10.0  # seconds


async def test_closing_with_unsent_data_to_a_server_that_reads_no_more(freezing):
    store = await RedisStore(freezing.url, timeout=SOON).open()
    connection = await store._client.connection()
    freezing.freeze()
    jobs = [spec(args=os.urandom(1 << 20)) for _ in range(20)]
    asking = asyncio.create_task(store.insert(jobs))
    await asyncio.sleep(0)
    assert connection._transport.get_write_buffer_size() > 0
    asking.cancel()
    await asyncio.wait_for(store.close(), PATIENCE)
    assert connection.socket_closed.done()
    assert asking.cancelled()


async def test_a_close_that_is_cancelled_lets_go_at_once(freezing):
    store = await RedisStore(freezing.url, timeout=timedelta(hours=1)).open()
    connection = await store._client.connection()
    freezing.freeze()
    connection.send(("PING", bytes(20_000_000)))
    closing = asyncio.create_task(store.close())
    await asyncio.wait([connection.closed])
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.wait_for(connection.socket_closed, PATIENCE)


async def test_a_connection_closed_from_elsewhere_is_given_up_in_time_too():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        connection = await Connection.connect(parse(f"redis://127.0.0.1:{deaf.getsockname()[1]}"), SOON.total_seconds())
        connection.send(("PING", bytes(20_000_000)))
        connection.close()
        await asyncio.wait_for(connection.socket_closed, PATIENCE)


@pytest.fixture
async def through():
    need_redis()
    with fresh() as namespace:
        async with Proxy(REDIS) as proxy, RedisStore(proxy.url, namespace=namespace) as store:
            yield store, proxy


async def call_on_new_connection(store, proxy, asked):
    """Make a call that waits for a new connection, which waits for its login."""
    connection = await store._client.connection()
    proxy.hold()
    proxy.cut()
    await asyncio.wait([connection.socket_closed])
    asking = asyncio.create_task(asked())
    while len(proxy._writers) < 2:  # noqa: ASYNC110 - what is counted rings no bell
        await asyncio.sleep(0.001)
    return asking


async def test_a_connection_that_was_being_made_is_not_left_behind(through):
    store, proxy = through
    asking = await call_on_new_connection(store, proxy, lambda: store.insert([spec()]))
    await store.close()
    proxy.let_go()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await asking
    async with asyncio.timeout(PATIENCE):
        while not all(writer.is_closing() for writer in proxy._writers):  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.001)
    async with store:
        assert await jobs_of(store) == []


async def test_a_connection_that_was_being_made_is_not_taken_for_one_of_the_store_opened_anew(through):
    store, proxy = through
    asking = await call_on_new_connection(store, proxy, lambda: store.insert([spec()]))
    await store.close()
    proxy.let_go()
    async with store:
        with pytest.raises(StoreUnavailable, match="is closed"):
            await asking
        assert await jobs_of(store) == []


async def test_a_connection_that_a_thread_was_opening_is_not_left_behind(freezing, monkeypatch):
    async with RedisStore(freezing.url) as store:
        caller, asked, call = store._blocking_client, threading.Event(), BlockingConnection.call

        def call_and_notify(connection, command, limit=None):
            asked.set()
            return call(connection, command, limit)

        monkeypatch.setattr(BlockingConnection, "call", call_and_notify)
        freezing.freeze()
        submitting = asyncio.create_task(asyncio.to_thread(store.insert_now, [spec()]))
        assert await asyncio.to_thread(asked.wait, PATIENCE)  # its login is on the way
        await store.close()
        freezing.thaw()
        with pytest.raises(StoreUnavailable, match="is closed"):
            await submitting
        assert not caller._connection.is_open
        async with store:
            assert await jobs_of(store) == []


async def test_listening_that_was_just_beginning_ends(through):
    store, proxy = through
    before = asyncio.all_tasks()
    proxy.hold()
    store.watch(["work:default"])
    while len(proxy._writers) < 4:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.001)
    await store.close()
    assert {task for task in asyncio.all_tasks() - before if "listen" in repr(task)} == set()
    proxy.let_go()
    async with asyncio.timeout(PATIENCE):
        while not all(writer.is_closing() for writer in proxy._writers):  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.001)
