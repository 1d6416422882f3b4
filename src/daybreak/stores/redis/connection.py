"""One connection, for asyncio: questions are sent at once, one behind the other, and answered in order.

What was sent and what was not is known exactly, so a lost answer is never taken for a refusal, nor sent twice."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, cast

from daybreak.stores.redis.address import Address
from daybreak.stores.redis.hiredis import Command, Garbled, pack, reader
from daybreak.system import patience


class Lost(Exception):
    """The connection broke after the question was sent."""


def greeting(address: Address) -> list[Command]:
    """What is said first on a new connection."""
    said: list[Command] = []
    if address.password is not None:
        said.append(("AUTH", *([address.username] if address.username else []), address.password))
    if address.db:
        said.append(("SELECT", address.db))
    said.append(("CLIENT", "SETNAME", "daybreak"))
    return said


class Link(asyncio.Protocol):
    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._reader = reader()
        self._waiting: deque[tuple[asyncio.Future[Any], float, float]] = deque()  # until when, and that is how long
        self._watch: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()  # its socket, too
        self.on_push: Any = None  # what to do with messages, on a connection that only listens

    @classmethod
    async def connect(cls, address: Address, timeout: float) -> Link:  # noqa: ASYNC109 - of answers
        loop = asyncio.get_running_loop()
        if address.path is not None:
            _, link = await loop.create_unix_connection(lambda: cls(timeout), address.path)
        else:
            _, link = await loop.create_connection(
                lambda: cls(timeout), address.host, address.port, ssl=address.context()
            )
        return link

    # -- asking --------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.closed.done()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def ask(self, command: Command) -> asyncio.Future[Any]:
        """Sent now; the future is the reply, an error reply as a value; or raises Lost."""
        packed = pack(command)
        assert self._transport is not None
        answer: asyncio.Future[Any] = self._loop.create_future()
        within = patience.left(self._timeout)
        until = self._loop.time() + within
        self._waiting.append((answer, until, within))
        self._transport.write(packed)
        if self._watch is None or until < self._looks_at:
            self._look_at(until)
        return answer

    def say(self, command: Command) -> None:
        """Sent without an answer to wait for, on a connection that only listens."""
        if self._transport is not None and not self.closed.done():
            self._transport.write(pack(command))

    def _look_at(self, when: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch, self._looks_at = self._loop.call_at(when, self._look), when

    def _look(self) -> None:
        """Give up when a question has waited too long. Those behind it would wait for the same server."""
        self._watch = None
        if not self._waiting:
            return
        first, within = min((until, within) for _, until, within in self._waiting)
        if first <= self._loop.time():
            self.break_off(f"no answer within {within:.3g} s")
        else:
            self._look_at(first)

    # -- the protocol --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while True:
            try:
                reply = self._reader.gets()
            except Garbled as error:
                self.break_off(f"the answer makes no sense ({error})")
                return
            if reply is False:
                return
            if self.on_push is not None:
                self.on_push(reply)
            elif self._waiting:
                answer, *_ = self._waiting.popleft()
                if not answer.done():
                    answer.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        self._fail(f"the connection broke ({error or 'closed by the server'})")

    def break_off(self, why: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._fail(why)

    def close(self) -> None:
        """What was said is still sent, but a server that reads no more is not waited for longer than for an answer."""
        self._fail("the store was closed")
        if self._transport is not None and not self.gone.done():
            self._transport.close()
            self._watch = self._loop.call_later(self._timeout, self._transport.abort)

    async def leave(self) -> None:
        """Close, and wait until its socket is closed, too."""
        self.close()
        try:
            await asyncio.wait([self.gone])
        except asyncio.CancelledError:
            self.break_off("the store was closed")
            raise

    def _fail(self, why: str) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if not self.closed.done():
            self.closed.set_result(None)
        while self._waiting:
            answer, *_ = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(Lost(why))
                answer.exception()  # looked at, also if nobody waits any more
