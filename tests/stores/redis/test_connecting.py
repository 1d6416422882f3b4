"""A server that accepts connections and never answers: each attempt times out, and the timeout adapts to measured
times."""

from __future__ import annotations

import socket
import time
from datetime import timedelta

import pytest
from redis_servers import REDIS, fresh, need_redis

from daybreak import Daybreak
from daybreak.client.connect_timeout import ConnectTimeout
from daybreak.core.errors import BadInput, StoreUnavailable
from daybreak.policy.timeouts import FULL_TRUST_SAMPLES
from daybreak.stores.redis import RedisStore
from daybreak.stores.redis.address import parse
from daybreak.stores.redis.blocking_client import BlockingConnection
from daybreak.system.ports import RealWorld

USUAL = 5.0  # seconds, the default timeout: what ends earlier has another cause


@pytest.fixture
def silent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}?connect_within="


async def given_up_after(store):
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="cannot be reached: no answer in time"):
        await store.open()
    return time.monotonic() - began


async def test_a_store_without_more_gives_up_after_what_its_url_says(silent):
    assert 0.2 <= await given_up_after(RedisStore(silent + "200ms")) < USUAL


async def test_with_a_limit_that_follows_it_gives_up_after_what_was_seen(silent):
    limit = ConnectTimeout(RealWorld())
    for _ in range(FULL_TRUST_SAMPLES):
        limit.took(timedelta(seconds=10), 0.001)
    assert limit.seconds(timedelta(milliseconds=500)) == 0.25
    assert 0.25 <= await given_up_after(RedisStore(silent + "500ms", connect_limit=limit)) < USUAL
    assert limit._durations.late == 1


async def test_after_three_that_were_late_it_waits_longer(silent):
    limit = ConnectTimeout(RealWorld())
    store, took = RedisStore(silent + "100ms", connect_limit=limit), []
    for _ in range(6):
        within = limit.seconds(timedelta(milliseconds=100))
        took.append(await given_up_after(store))
        assert within <= took[-1] < USUAL
    assert took[-1] >= 0.3
    assert limit._durations.late == 6


async def test_an_answer_may_not_take_longer_for_it(silent):
    store = RedisStore(silent + "1h", timeout=timedelta(milliseconds=50))
    assert 0.05 <= await given_up_after(store) < USUAL


def test_whoever_waits_without_a_loop_has_no_longer(silent):
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer within"):
        BlockingConnection(parse(silent + "1h"), 10, 0.2)
    assert 0.2 <= time.monotonic() - began < USUAL


async def test_connections_of_every_kind_are_seen():
    need_redis()
    limit = ConnectTimeout(RealWorld())
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace, connect_limit=limit) as store:
            assert limit._durations.seen == 1
            store._blocking_client._ensure_connected()
            assert limit._durations.seen == 2
            connection = await store._client.connect()
            connection.close()
            await connection.socket_closed
    assert (limit._durations.seen, limit._durations.late) == (3, 0)


async def test_one_that_is_refused_counts_for_nothing():
    limit = ConnectTimeout(RealWorld())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await RedisStore(f"redis://127.0.0.1:{port}", connect_limit=limit).open()
    assert limit._durations.seen == 0


def test_an_app_gives_up_in_time_again_and_again_and_then_later(silent):
    app = Daybreak(silent + "100ms")
    took = []
    for _ in range(6):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            app.stats()
        took.append(time.monotonic() - began)
    app.close()
    assert max(took) < USUAL
    assert took[-1] >= 0.3


def test_the_time_in_a_url_is_read_strictly():
    assert parse("redis://h").connect_within == timedelta(seconds=5)
    assert parse("redis://h?connect_within=300ms").connect_within == timedelta(milliseconds=300)
    for wrong in ("soon", "0s", "-1s"):
        with pytest.raises(BadInput, match="connect_within"):
            parse(f"redis://h?connect_within={wrong}")
