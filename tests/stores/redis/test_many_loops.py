"""One store, watched from several loops: none depends on another."""

from __future__ import annotations

import asyncio
import gc
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from redis_servers import REDIS, fresh, need_redis

from daybreak.core.model import Put
from daybreak.store.protocol import work_topic
from daybreak.stores.redis import RedisStore, wake
from daybreak.testing.contract.builders import accept

PATIENCE = timedelta(seconds=5)
TOPIC = work_topic("default")


@pytest.fixture
async def stores():
    """A store that is watched, and one that changes something."""
    need_redis()
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as idle, RedisStore(REDIS, namespace=namespace) as busy:
            yield idle, busy


class OtherLoop:
    """A loop in a thread of its own. It may stop without being closed."""

    def __init__(self) -> None:
        self._may_close = threading.Event()
        self._stopped = threading.Event()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._live)
        self._thread.start()
        assert self._running.wait(PATIENCE.total_seconds())

    def _live(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._run())
            self._stopped.set()
            self._may_close.wait()

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._running.set()
        await self._end.wait()

    def do(self, doing):
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(2 * PATIENCE.total_seconds())

    def stop(self) -> None:
        if not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._end.set)
        assert self._stopped.wait(PATIENCE.total_seconds())

    def close(self) -> None:
        self.stop()
        self._may_close.set()
        self._thread.join(PATIENCE.total_seconds())


@pytest.fixture
def other():
    loop = OtherLoop()
    yield loop
    loop.close()


async def watch(store, topic=TOPIC):
    return store.watch([topic])


async def drain(watch) -> None:
    """Wait until all pending wake-ups have arrived."""
    while await watch.wait(timedelta(milliseconds=50)):
        pass


@pytest.mark.parametrize("end", ["stop", "close"])
async def test_a_loop_that_ends_stops_no_other_from_listening(stores, other, end):
    idle, busy = stores
    first = await asyncio.to_thread(other.do, watch(idle))
    await asyncio.to_thread(other.do, drain(first))
    second = await watch(idle)
    await drain(second)
    await asyncio.to_thread(getattr(other, end))
    await drain(second)
    await accept(busy, now=None)
    assert await second.wait(PATIENCE)


async def test_a_topic_unsubscribed_here_is_received_where_it_is_watched_just_then(stores, other, monkeypatch):
    idle, busy = stores
    monkeypatch.setattr(wake, "MAX_IDLE_CHANNELS", 0)
    monkeypatch.setattr(wake, "SLOW_POLL", timedelta(milliseconds=20))
    given_up, watches, topics = threading.Event(), [], wake.WatchedTopics.topics

    def topics_and_then(hub):
        """Another loop begins to watch while this one unsubscribes."""
        found = topics(hub)
        if armed.is_set() and not given_up.is_set():
            given_up.set()
            monkeypatch.setattr(wake, "SLOW_POLL", timedelta(hours=1))
            watches.append(other.do(watch(idle)))
        return found

    armed = threading.Event()
    monkeypatch.setattr(wake.WatchedTopics, "topics", topics_and_then)
    kept, given = await watch(idle, "elsewhere"), await watch(idle)
    await drain(given)
    given.close()
    armed.set()
    assert await asyncio.to_thread(given_up.wait, PATIENCE.total_seconds())
    await asyncio.to_thread(other.do, drain(watches[0]))
    await accept(busy, now=None)
    assert await asyncio.to_thread(other.do, watches[0].wait(PATIENCE))
    kept.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_loops_that_have_ended_leave_no_connections_behind():
    """A script that calls `asyncio.run` again and again."""
    need_redis()
    with fresh() as namespace:
        store = RedisStore(REDIS, namespace=namespace)

        async def call() -> None:
            await store.open()
            await store.get(["x"])

        asyncio.run(call())
        before = sockets()
        for _ in range(10):
            asyncio.run(call())
        assert sockets() - before <= 1
        asyncio.run(store.close())
        assert sockets() <= before


def sockets() -> int:
    gc.collect()
    names = [str(name.readlink()) for name in Path("/proc/self/fd").iterdir() if name.is_symlink()]
    return sum(name.startswith("socket:") for name in names)


@pytest.mark.parametrize(("kind", "is_noticed"), [("queue", True), ("worker", False)])
async def test_the_slow_poll_notices_lost_messages_about_settings_but_no_worker_records(kind, is_noticed, monkeypatch):
    need_redis()
    monkeypatch.setattr(wake, "SLOW_POLL", timedelta(milliseconds=20))
    monkeypatch.setattr(
        wake.Subscriber, "_on_message", lambda self, _message: setattr(self, "_has_heard", True)
    )  # ignores messages
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as store, RedisStore(REDIS, namespace=namespace) as other:
            watch = store.watch([work_topic("q")])
            while await watch.wait(timedelta(milliseconds=300)):
                pass  # earlier wake-ups
            await other.put([Put(kind=kind, name="q", value=b"{}")])
            assert await watch.wait(timedelta(seconds=5 if is_noticed else 1)) is is_noticed
