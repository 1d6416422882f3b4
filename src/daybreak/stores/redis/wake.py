"""Wakes waiting processes by publish and subscribe. Each event loop that watches has a subscribed connection, and a
slow poll in case a message was lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from daybreak.core.errors import StoreError
from daybreak.stores.backoff import Backoff
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.connection import Connection
from daybreak.stores.redis.event_codec import unpack_names
from daybreak.stores.wakeups import ANY, HubWatch, Wakeups
from daybreak.system import patience

SLOW_POLL: Final = timedelta(seconds=10)
MAX_IDLE_CHANNELS: Final = 100  # with more channels that nobody watches, they are unsubscribed
_JOB: Final = "job:"


class WatchedTopics(Wakeups):
    """Wake-ups inside the process that can list the watched topics."""

    def topics(self) -> set[str]:
        with self._lock:
            return set(self._watches)


class Wake:
    """Usable from any number of event loops. Each has its own subscriber, so that one may end without the others."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._subscribers: dict[asyncio.AbstractEventLoop, Subscriber] = {}

    def watch(self, topics: Iterable[str]) -> HubWatch:
        loop = asyncio.get_running_loop()
        if (subscriber := self._subscribers.get(loop)) is None:
            for closed_loop in [other for other in list(self._subscribers) if other.is_closed()]:
                self._subscribers.pop(closed_loop, None)
            subscriber = self._subscribers[loop] = Subscriber(self._client)
        return subscriber.watch(topics)

    async def close(self) -> None:
        """Stop listening. Watches are not woken until the store is opened and watched again."""
        if not self._client.is_ours:
            self._subscribers = {}
            return
        here = asyncio.get_running_loop()
        for loop, subscriber in list(self._subscribers.items()):
            if loop is not here:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(subscriber.cancel)
        if (own := self._subscribers.get(here)) is not None:
            await own.close()


class Subscriber:
    """The subscribed connection of one event loop. Scripts publish what they changed: one channel for each topic, but
    one channel for the ends of all jobs.

    A subscription takes effect only after a moment. When the server confirms it, its watches are woken once, so that
    they see what happened before; and all watches are woken after a lost connection."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._hub = WatchedTopics()
        self._channels: set[str] = set()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._seen: Any = None
        self._has_heard = True

    def watch(self, topics: Iterable[str]) -> HubWatch:
        watch = self._hub.watch(topics)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())
        if new := {self._channel(topic) for topic in watch.topics} - self._channels:
            self._channels |= new
            if self._connection is not None:
                self._connection.send(("SUBSCRIBE", *new))
        return watch

    def _channel(self, topic: str) -> str:
        return self._client.prefix.decode() + "wake:" + ("job" if topic.startswith(_JOB) else topic)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    # -- listening -----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        patience.unbound()  # this task serves all watches, so no caller's patience applies
        backoff = Backoff()
        while not self._client.is_closed:  # a subscriber that starts while the store closes may not be cancelled
            await self._client.back_off(backoff)
            began = time.monotonic()
            try:
                connection = await self._client.connect()
            except StoreError:  # callers report errors of the server; this task only reconnects
                backoff.failed(time.monotonic() - began)
                continue
            backoff.connected()
            try:
                connection.on_push = self._on_message
                self._connection, self._has_heard = connection, True
                self._channels = {self._channel(topic) for topic in self._hub.topics()}
                if self._channels:
                    connection.send(("SUBSCRIBE", *self._channels))
                self._hub.wake([ANY])
                await self._poll_while_open(connection)
            finally:
                self._connection = None
                if not connection.loop.is_closed():
                    connection.abort("nobody listens any more")  # what is still unsent does not matter
                    await asyncio.wait([connection.socket_closed])
            backoff.lost()

    def _on_message(self, message: Any) -> None:
        self._has_heard = True
        if not isinstance(message, list):
            return
        kind, channel = message[0], message[1]
        if kind not in (b"message", b"subscribe"):
            return
        topic = channel.decode().partition("}:wake:")[2] if b"}:wake:" in channel else ""
        if topic != "job":
            self._hub.wake([topic])
        elif kind == b"message":
            self._hub.wake([_JOB + job for job in unpack_names(message[2])])
        else:
            self._hub.wake([ANY])

    async def _poll_while_open(self, connection: Connection) -> None:
        """Poll for changes while the connection is open, in case a message was lost."""
        while connection.is_open and not self._client.is_closed:
            done, _ = await asyncio.wait([connection.closed], timeout=SLOW_POLL.total_seconds())
            if done:
                return
            if not self._has_heard:
                connection.abort("it does not answer")
                return
            self._has_heard = False
            connection.send(("PING",))
            self._unsubscribe_idle(connection)
            if self._hub.is_watched:
                with contextlib.suppress(StoreError):
                    # `set` does not count the records by which workers show that they are alive, nor the logs of
                    # jobs: those are written all the time, and no watch waits for them.
                    seen = await self._client.command("HMGET", self._client.prefix + b"meta", "pos", "set")
                    if seen != self._seen:
                        self._seen = seen
                        self._hub.wake([ANY])

    def _unsubscribe_idle(self, connection: Connection) -> None:
        """Unsubscribe from channels that nobody watches any more, once they are many."""
        idle = self._channels - {self._channel(topic) for topic in self._hub.topics()}
        if len(idle) > MAX_IDLE_CHANNELS:
            self._channels -= idle
            connection.send(("UNSUBSCRIBE", *idle))
