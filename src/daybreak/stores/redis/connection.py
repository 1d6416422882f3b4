"""One connection for asyncio. Commands are pipelined: each is sent at once, and the replies come in the same order.

The connection knows exactly which commands were sent, so a lost reply is never mistaken for a refused command, and no
command is sent twice."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, cast

from daybreak.stores.redis.address import Address
from daybreak.stores.redis.hiredis import Command, ProtocolError, pack, reader
from daybreak.system import patience


class ConnectionLost(Exception):
    """The connection broke after the command was sent."""


def greeting(address: Address) -> list[Command]:
    """The first commands on a new connection."""
    commands: list[Command] = []
    if address.password is not None:
        commands.append(("AUTH", *([address.username] if address.username else []), address.password))
    if address.db:
        commands.append(("SELECT", address.db))
    commands.append(("CLIENT", "SETNAME", "daybreak"))
    return commands


class Connection(asyncio.Protocol):
    """One socket. Use it only on the event loop that opened it."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._reader = reader()
        self._pending: deque[tuple[asyncio.Future[Any], float, float]] = (
            deque()
        )  # each with its deadline and its timeout
        self._timer: asyncio.TimerHandle | None = None
        self._next_check = 0.0
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.socket_closed: asyncio.Future[None] = self._loop.create_future()  # resolved when the socket is closed, too
        self.on_push: Any = None  # called with each message, on a connection that only subscribes

    @classmethod
    async def connect(cls, address: Address, timeout: float) -> Connection:  # noqa: ASYNC109 - the timeout of replies
        loop = asyncio.get_running_loop()
        if address.path is not None:
            _, link = await loop.create_unix_connection(lambda: cls(timeout), address.path)
        else:
            _, link = await loop.create_connection(
                lambda: cls(timeout), address.host, address.port, ssl=address.context()
            )
        return link

    # -- commands ------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.closed.done()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def call(self, command: Command) -> asyncio.Future[Any]:
        """Send a command now. The future returns the reply (an error reply as a value) or raises ConnectionLost."""
        packed = pack(command)
        assert self._transport is not None
        reply_future: asyncio.Future[Any] = self._loop.create_future()
        timeout = patience.left(self._timeout)
        deadline = self._loop.time() + timeout
        self._pending.append((reply_future, deadline, timeout))
        self._transport.write(packed)
        if self._timer is None or deadline < self._next_check:
            self._check_at(deadline)
        return reply_future

    def send(self, command: Command) -> None:
        """Send a command without waiting for a reply, on a connection that only subscribes."""
        if self._transport is not None and not self.closed.done():
            self._transport.write(pack(command))

    def _check_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next_check = self._loop.call_at(when, self._check_timeouts), when

    def _check_timeouts(self) -> None:
        """Abort the connection if a reply is overdue: later commands would wait for the same server."""
        self._timer = None
        if not self._pending:
            return
        earliest, timeout = min((deadline, timeout) for _, deadline, timeout in self._pending)
        if earliest <= self._loop.time():
            self.abort(f"no answer within {timeout:.3g} s")
        else:
            self._check_at(earliest)

    # -- the protocol --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not a subclass
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while True:
            try:
                reply = self._reader.gets()
            except ProtocolError as error:
                self.abort(f"the reply violates the Redis protocol ({error})")
                return
            if reply is False:
                return
            if self.on_push is not None:
                self.on_push(reply)
            elif self._pending:
                reply_future, *_ = self._pending.popleft()
                if not reply_future.done():
                    reply_future.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.socket_closed.done():
            self.socket_closed.set_result(None)
        self._fail(f"the connection broke ({error or 'closed by the server'})")

    def abort(self, why: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._fail(why)

    def close(self) -> None:
        """Close after everything was sent. If the server no longer reads, abort after the reply timeout."""
        self._fail("the store was closed")
        if self._transport is not None and not self.socket_closed.done():
            self._transport.close()
            self._timer = self._loop.call_later(self._timeout, self._transport.abort)

    async def close_and_wait(self) -> None:
        """Close, and wait until the socket is closed, too."""
        self.close()
        try:
            await asyncio.wait([self.socket_closed])
        except asyncio.CancelledError:
            self.abort("the store was closed")
            raise

    def _fail(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.closed.done():
            self.closed.set_result(None)
        while self._pending:
            reply_future, *_ = self._pending.popleft()
            if not reply_future.done():
                reply_future.set_exception(ConnectionLost(why))
                reply_future.exception()  # mark it as retrieved, even if nobody waits for it
