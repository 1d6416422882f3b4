"""Wake-up by publish and subscribe: each loop that watches has a connection that listens, and a slow look behind it."""

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
from daybreak.stores.redis.connection import Link
from daybreak.stores.redis.event_codec import unpack_names
from daybreak.stores.wakeups import ANY, HubWatch, Wakeups
from daybreak.system import patience

SLOW_LOOK: Final = timedelta(seconds=10)
FORGOTTEN: Final = 100  # so many channels may be listened to in vain before they are given up
_JOB: Final = "job:"


class Topics(Wakeups):
    def topics(self) -> set[str]:
        with self._lock:
            return set(self._watches)


class Wake:
    """From any number of loops. Each has an ear of its own: when one ends, the others hear as before."""

    def __init__(self, line: RedisClient) -> None:
        self._line = line
        self._ears: dict[asyncio.AbstractEventLoop, Subscriber] = {}

    def watch(self, topics: Iterable[str]) -> HubWatch:
        loop = asyncio.get_running_loop()
        if (ear := self._ears.get(loop)) is None:
            for ended in [other for other in list(self._ears) if other.is_closed()]:
                self._ears.pop(ended, None)
            ear = self._ears[loop] = Subscriber(self._line)
        return ear.watch(topics)

    async def close(self) -> None:
        """Listen no more. Who watches is woken again when the store is opened and watched anew."""
        if not self._line.is_ours:
            self._ears = {}
            return
        here = asyncio.get_running_loop()
        for loop, ear in list(self._ears.items()):
            if loop is not here:
                with contextlib.suppress(RuntimeError):  # it has ended
                    loop.call_soon_threadsafe(ear.cancel)
        if (mine := self._ears.get(here)) is not None:
            await mine.close()


class Subscriber:
    """Scripts publish what they changed: one channel a topic, but one for the ends of all jobs.

    A subscription takes a moment to begin. When the server has confirmed it, those who wait are woken once, so that
    nothing that happened before is slept through; and so is everybody after a break of the connection."""

    def __init__(self, line: RedisClient) -> None:
        self._line = line
        self._hub = Topics()
        self._channels: set[str] = set()
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._seen: Any = None
        self._heard = True

    def watch(self, topics: Iterable[str]) -> HubWatch:
        watch = self._hub.watch(topics)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())
        if new := {self._channel(topic) for topic in watch.topics} - self._channels:
            self._channels |= new
            if self._link is not None:
                self._link.say(("SUBSCRIBE", *new))
        return watch

    def _channel(self, topic: str) -> str:
        return self._line.prefix.decode() + "wake:" + ("job" if topic.startswith(_JOB) else topic)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    # -- listening -----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        patience.unbound()  # a task of its own, whoever was the first to watch
        backoff = Backoff()
        while not self._line.is_closed:  # who begins while the store is being closed may not be told of it
            await self._line.rest(backoff)
            began = time.monotonic()
            try:
                link = await self._line.dial()
            except StoreError:  # trouble is for those who ask something of the store; this goes on trying
                backoff.failed(time.monotonic() - began)
                continue
            backoff.connected()
            try:
                link.on_push = self._hear
                self._link, self._heard = link, True
                self._channels = {self._channel(topic) for topic in self._hub.topics()}
                if self._channels:
                    link.say(("SUBSCRIBE", *self._channels))
                self._hub.wake([ANY])
                await self._look_while(link)
            finally:
                self._link = None
                if not link.loop.is_closed():
                    link.break_off("nobody listens any more")  # nothing it could still send matters
                    await asyncio.wait([link.gone])
            backoff.lost()

    def _hear(self, push: Any) -> None:
        self._heard = True
        if not isinstance(push, list):
            return
        kind, channel = push[0], push[1]
        if kind not in (b"message", b"subscribe"):
            return
        topic = channel.decode().partition("}:wake:")[2] if b"}:wake:" in channel else ""
        if topic != "job":
            self._hub.wake([topic])
        elif kind == b"message":
            self._hub.wake([_JOB + job for job in unpack_names(push[2])])
        else:
            self._hub.wake([ANY])

    async def _look_while(self, link: Link) -> None:
        """The net under the messages, for as long as the connection lasts: what changed unheard is noticed here."""
        while link.is_open and not self._line.is_closed:
            done, _ = await asyncio.wait([link.closed], timeout=SLOW_LOOK.total_seconds())
            if done:
                return
            if not self._heard:
                link.break_off("it answers no more")
                return
            self._heard = False
            link.say(("PING",))
            self._give_up(link)
            if self._hub.is_watched:
                with contextlib.suppress(StoreError):
                    # That some worker is alive is written all the time, and nobody's work.
                    seen = await self._line.command("HMGET", self._line.prefix + b"meta", "pos", "set")
                    if seen != self._seen:
                        self._seen = seen
                        self._hub.wake([ANY])

    def _give_up(self, link: Link) -> None:
        """Channels that nobody watches any more, when they have become many."""
        idle = self._channels - {self._channel(topic) for topic in self._hub.topics()}
        if len(idle) > FORGOTTEN:
            self._channels -= idle
            link.say(("UNSUBSCRIBE", *idle))
