from __future__ import annotations

import contextlib
import copy
import hashlib

import pytest
from redis_servers import REDIS, FollowsHand, fresh, need_redis

from daybreak.stores.redis import RedisStore, client, scripts
from daybreak.testing import HandClock, StoreContract
from daybreak.testing.contract.time import TwoClocks


class RedisPrograms:
    """Programs of today's layout and of a synthetic next one in one namespace. Each brings its own scripts."""

    def __init__(self, namespace, monkeypatch):
        self._namespace = namespace
        self._monkeypatch = monkeypatch

    def current(self):
        return RedisStore(REDIS, namespace=self._namespace)

    @contextlib.asynccontextmanager
    async def newer(self, *, serves_older):
        store = self.current()
        run = store._client.run
        store._client.run = lambda script, *args, **options: run(next_version(script), *args, **options)
        with self._monkeypatch.context() as patch:
            patch.setattr(client, "OPEN", next_version(scripts.OPEN))
            patch.setattr(client, "NEEDS", scripts.VERSION + (not serves_older))
            await store.open()
        async with store:
            yield store

    async def look_again(self, store):
        """Every script looks at the version."""


def next_version(script):
    newer = copy.copy(script)
    newer.text = script.text.replace(
        b"local VERSION = %d" % scripts.VERSION, b"local VERSION = %d" % (scripts.VERSION + 1), 1
    )
    newer.sha = hashlib.sha1(newer.text, usedforsecurity=False).hexdigest().encode()
    return newer


class TestRedis(StoreContract):
    """Uses the server's clock; the class below has the tests that move the clock."""

    @pytest.fixture
    async def store(self):
        need_redis()
        with fresh() as namespace:
            async with RedisStore(REDIS, namespace=namespace) as store:
                yield store

    @pytest.fixture
    def programs(self, store, monkeypatch):
        return RedisPrograms(store.namespace, monkeypatch)


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
