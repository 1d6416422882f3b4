"""Wake-up by publish and subscribe: one connection of its own that listens, and a slow look behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from daybreak.errors import StoreError
from daybreak.stores.hub import ANY, Hub, HubWatch
from daybreak.stores.redis.line import Line
from daybreak.stores.redis.link import Link
from daybreak.stores.redis.told import unpack_names

SLOW_LOOK: Final = timedelta(seconds=10)
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
FORGOTTEN: Final = 100  # so many channels may be listened to in vain before they are given up
_JOB: Final = "job:"


class Topics(Hub):
    def topics(self) -> set[str]:
        with self._lock:
            return set(self._watches)


class Wake:
    """Scripts publish what they changed: one channel a topic, but one for the ends of all jobs.

    A subscription takes a moment to begin. When the server has confirmed it, those who wait are woken once, so that
    nothing that happened before is slept through; and so is everybody after a break of the connection."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._hub = Topics()
        self._channels: set[str] = set()
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._seen: Any = None
        self._heard = True

    def watch(self, topics: Iterable[str]) -> HubWatch:
        watch = self._hub.watch(topics)
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or not self._task.get_loop().is_running():
            self._channels = set()
            self._link = None
            self._task = loop.create_task(self._listen())
        if new := {self._channel(topic) for topic in watch.topics} - self._channels:
            self._channels |= new
            if (link := self._link) is not None:
                if link.loop is loop:
                    link.say(("SUBSCRIBE", *new))
                else:
                    link.loop.call_soon_threadsafe(link.say, ("SUBSCRIBE", *new))
        return watch

    def _channel(self, topic: str) -> str:
        return self._line.prefix.decode() + "wake:" + ("job" if topic.startswith(_JOB) else topic)

    # -- listening -----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                link = await self._line.dial()
            except StoreError:  # trouble is for those who ask something of the store; this goes on trying
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
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
                link.close()
                if not link.loop.is_closed():
                    await link.gone
            pause = FIRST_PAUSE

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
        while link.is_open:
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
                    seen = await self._line.command("HMGET", self._line.prefix + b"meta", "pos", "revision")
                    if seen != self._seen:
                        self._seen = seen
                        self._hub.wake([ANY])

    def _give_up(self, link: Link) -> None:
        """Channels that nobody watches any more, when they have become many."""
        idle = self._channels - {self._channel(topic) for topic in self._hub.topics()}
        if len(idle) > FORGOTTEN:
            self._channels -= idle
            link.say(("UNSUBSCRIBE", *idle))

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None or not self._line.is_ours:
            return
        loop = task.get_loop()
        if loop is asyncio.get_running_loop():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        elif not loop.is_closed():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
