"""The live feed: events by server-sent events (SSE), each with a cursor as its id.

A client that reconnects sends the id of the last event it saw, and goes on behind it: no gap, no repeat, also after a
restart of the server or at another server. Nothing is buffered per client: every client pulls pages from the feed as
fast as it can send them, and clients at the same place share them (`client/feed_pages.py`). A client that takes no
bytes for a while is disconnected."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
from litestar import Request, Response
from litestar.response.base import ASGIResponse
from msgspec import Struct

from daybreak.api.app import Daybreak
from daybreak.api.views.job import feed_event_view
from daybreak.api.views.scalars import finite
from daybreak.client.feed_pages import FeedPage, FeedPages
from daybreak.core.errors import CursorExpired, StoreError
from daybreak.core.events import Event
from daybreak.server.edge import Receive, Scope, Send
from daybreak.server.problems import STORE_UNAVAILABLE, Problem
from daybreak.store.protocol import Store

_log = logging.getLogger("daybreak.server")

KEEP_ALIVE: Final = timedelta(seconds=15)  # a comment is sent so that proxies keep a quiet connection
CHECK_CALLER_EVERY: Final = timedelta(seconds=30)
SLOW_AFTER: Final = timedelta(seconds=30)  # a client that takes no bytes for so long is disconnected
SUMMARY_EVERY: Final = timedelta(seconds=1)
STORE_RETRY: Final = timedelta(seconds=1)
RETRY_AFTER: Final = timedelta(seconds=5)
RECONNECT_MILLISECONDS: Final = 1000
HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the stream otherwise
)


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events a client wants: those that agree with every field that is set. `queues` is what its token may see;
    None is everything."""

    job: frozenset[str] = frozenset()
    run: frozenset[str] = frozenset()
    queue: frozenset[str] = frozenset()
    task: frozenset[str] = frozenset()
    owner: frozenset[str] = frozenset()
    kind: frozenset[str] = frozenset()
    queues: frozenset[str] | None = None

    def wants(self, event: Event) -> bool:
        if self.queues is not None and event.queue not in self.queues:
            return False
        for name in ("job", "run", "queue", "task", "owner", "kind"):
            wanted = getattr(self, name)
            if wanted and getattr(event, name) not in wanted:
                return False
        return True


EVERYTHING: Final = EventFilter()


class LiveFeed:
    """The listeners of one server process."""

    def __init__(self, app: Daybreak, max_listeners: int) -> None:
        self._pages = FeedPages(self._store_of(app), app.world)
        self._max_listeners = max_listeners
        self._is_stopped = False
        self._encoded: WeakKeyDictionary[FeedPage, EncodedPage] = WeakKeyDictionary()
        self.dropped = 0

    @staticmethod
    def _store_of(app: Daybreak) -> Callable[[], Awaitable[Store]]:
        async def store() -> Store:
            return (await app.client()).store

        return store

    @property
    def listeners(self) -> int:
        return self._pages.readers

    def stop(self) -> None:
        """End every stream, because the server stops. Clients connect again by themselves."""
        self._is_stopped = True
        self._pages.wake()

    async def listen(
        self,
        wanted: EventFilter,
        after: str | None,
        still_allowed: Callable[[], Awaitable[bool]],
        *,
        summary: bool = False,
    ) -> LiveResponse:
        """A stream of the events behind the cursor `after`, or from now on; or a `summary` of them. Raises
        CursorExpired, and a problem if there are too many listeners."""
        if self.listeners >= self._max_listeners:
            raise Problem(
                STORE_UNAVAILABLE,
                f"{self.listeners} clients are connected, which is the limit of this server",
                retry_after=RETRY_AFTER,
            )
        cursor = after
        if cursor is None:
            cursor = await self._pages.latest()
        else:
            await self._pages.after(cursor)  # an expired or invalid cursor is an error now, not in the stream
        return LiveResponse(self, self._chunks(wanted, cursor, still_allowed, Counter() if summary else None))

    async def _chunks(
        self,
        wanted: EventFilter,
        cursor: str,
        still_allowed: Callable[[], Awaitable[bool]],
        counts: Counter[str] | None,
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        self._pages.join()
        try:
            # The first bytes carry an id, so that a client that is cut off before the first event misses nothing.
            yield f"retry: {RECONNECT_MILLISECONDS}\nid: {cursor}\nevent: open\ndata: {{}}\n\n".encode()
            sent_at = checked_at = loop.time()
            while not self._is_stopped:
                news = self._pages.news
                try:
                    page = await self._pages.after(cursor)
                except CursorExpired:
                    yield b"event: expired\ndata: {}\n\n"
                    return
                except StoreError as error:
                    _log.warning("live feed: %s; trying again", error)
                    await asyncio.sleep(STORE_RETRY.total_seconds())
                    continue
                cursor = page.cursor
                if counts is None:
                    chunk = self._encode(page).chunk(wanted)
                else:
                    counts.update(event.kind for event in page.events if wanted.wants(event))
                    chunk = b""
                    if counts and not page.events:
                        # The feed is read to its end; wait until the second is over, then tell of all of it.
                        await asyncio.sleep(max(sent_at + SUMMARY_EVERY.total_seconds() - loop.time(), 0.0))
                    if counts and loop.time() - sent_at >= SUMMARY_EVERY.total_seconds():
                        chunk = encode_summary(counts, cursor)
                        counts.clear()
                if loop.time() - checked_at >= CHECK_CALLER_EVERY.total_seconds():
                    checked_at = loop.time()
                    if not await still_allowed():
                        return
                if chunk:
                    yield chunk
                    sent_at = loop.time()
                elif not page.events and not self._is_stopped:
                    left = KEEP_ALIVE.total_seconds() - (loop.time() - sent_at)
                    await self._pages.wait(news, timedelta(seconds=max(left, 0.01)))
                if loop.time() - sent_at >= KEEP_ALIVE.total_seconds():
                    # With the id, so that a client whose filter matches little does not fall behind what is purged.
                    yield f"id: {cursor}\nevent: quiet\ndata: {{}}\n\n".encode()
                    sent_at = loop.time()
        finally:
            await self._pages.leave()

    def _encode(self, page: FeedPage) -> EncodedPage:
        """Clients at one cursor share a page, so it is encoded once for all of them."""
        found = self._encoded.get(page)
        if found is None:
            found = self._encoded[page] = EncodedPage(page.events, page.cursors)
        return found


def encode_summary(counts: Counter[str], cursor: str) -> bytes:
    """How many events of each kind there were, as one SSE message."""
    return b"id: %b\nevent: summary\ndata: %b\n\n" % (cursor.encode(), msgspec.json.encode(dict(counts)))


class EncodedPage:
    """A page as SSE messages: the id is the cursor behind the event, the data is JSON. The messages are kept once, in
    one piece, because many pages are remembered."""

    def __init__(self, events: Sequence[Event], cursors: Sequence[str]) -> None:
        self._events = events
        messages = [
            b"id: %b\ndata: %b\n\n" % (cursor.encode(), msgspec.json.encode(finite(feed_event_view(event))))
            for event, cursor in zip(events, cursors, strict=True)
        ]
        self._all = b"".join(messages)
        self._ends = list(itertools.accumulate(map(len, messages)))

    def chunk(self, wanted: EventFilter) -> bytes:
        """The messages of the wanted events."""
        if wanted == EVERYTHING:
            return self._all
        whole, begin, chosen = memoryview(self._all), 0, []
        for event, end in zip(self._events, self._ends, strict=True):
            if wanted.wants(event):
                chosen.append(whole[begin:end])
            begin = end
        return b"".join(chosen)


class LiveResponse(Response[None]):
    """A response that goes on until the client leaves, takes nothing more, or the server stops."""

    def __init__(self, feed: LiveFeed, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(None)
        self._feed = feed
        self._chunks = chunks

    def to_asgi_response(self, app: Any, request: Request[Any, Any, Any], **options: Any) -> ASGIResponse:  # noqa: ARG002
        return _LiveASGI(self._feed, self._chunks)


class _LiveASGI(ASGIResponse):
    def __init__(self, feed: LiveFeed, chunks: AsyncIterator[bytes]) -> None:
        super().__init__()
        self._feed = feed
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]  # noqa: ARG002
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_until_disconnected(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        if sending.done() and not sending.cancelled() and sending.exception() is not None:
            error = sending.exception()
            if not isinstance(error, TimeoutError | OSError):
                raise error  # type: ignore[misc]

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._chunks) as chunks:  # type: ignore[type-var]
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            async for chunk in chunks:
                try:
                    async with asyncio.timeout(SLOW_AFTER.total_seconds()):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                except TimeoutError:
                    self._feed.dropped += 1
                    _log.warning("live feed: disconnecting a client that took no bytes for %s", SLOW_AFTER)
                    raise
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
