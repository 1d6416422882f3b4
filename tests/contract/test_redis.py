from __future__ import annotations

import pytest
from redis_servers import REDIS, FollowsHand, fresh, need_redis

from daybreak.stores.redis import RedisStore
from daybreak.testing import HandClock, StoreContract
from daybreak.testing.contract.time import TwoClocks


class TestRedis(StoreContract):
    """Its clock is the server's: the tests that move the store's own clock by hand are those below."""

    @pytest.fixture
    async def store(self):
        need_redis()
        with fresh() as namespace:
            async with RedisStore(REDIS, namespace=namespace) as store:
                yield store


class TestRedisTwoClocks(TwoClocks):
    """The server's clock and ours are moved by hand."""

    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    async def store(self, clock, monkeypatch):
        need_redis()
        with fresh() as namespace:
            store = RedisStore(REDIS, namespace=namespace, world=clock)
            FollowsHand(store, clock, monkeypatch)
            async with store:
                yield store
