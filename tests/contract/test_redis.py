from __future__ import annotations

import pytest
from redis_servers import REDIS, FollowsHand, fresh, need_redis

from daybreak.stores.redis import RedisStore
from daybreak.testing import HandClock, StoreContract
from daybreak.testing.contract.time import TwoClocks


class TestRedis(StoreContract):
    """Uses the server's clock; the class below has the tests that move the clock."""

    @pytest.fixture
    async def store(self):
        need_redis()
        with fresh() as namespace:
            async with RedisStore(REDIS, namespace=namespace) as store:
                yield store


class TestRedisTwoClocks(TwoClocks):
    """The server's clock and the process's clock are moved by hand."""

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
