from __future__ import annotations

import pytest
from redis_servers import REDIS, fresh, need_redis

from daybreak.stores.redis import RedisStore
from daybreak.testing import StoreContract


class TestRedis(StoreContract):
    """Its clock is the server's: the tests that move the store's own clock by hand are skipped."""

    @pytest.fixture
    async def store(self):
        need_redis()
        with fresh() as namespace:
            async with RedisStore(REDIS, namespace=namespace) as store:
                yield store
