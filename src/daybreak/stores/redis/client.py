"""The client of a Redis server: connects when needed, runs scripts, and reports whether they took effect."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import ssl
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from daybreak.core.errors import StoreUnavailable
from daybreak.core.units import micros
from daybreak.store.protocol import ConnectLimit, FixedLimit
from daybreak.stores.backoff import Backoff
from daybreak.stores.redis import faults
from daybreak.stores.redis.address import Address
from daybreak.stores.redis.connection import Connection, ConnectionLost, greeting
from daybreak.stores.redis.hiredis import ErrorReply
from daybreak.stores.redis.scripts import CORRECT, NEEDS, OPEN, Script
from daybreak.stores.redis.server_clock import ServerClock, correction_args
from daybreak.stores.steady_clock import Jump
from daybreak.system import patience

MAX_ATTEMPTS: Final = 5
CORRECTION_REFUSED: Final = 2  # correct.lua: other processes saw the clock run evenly
_log = logging.getLogger("daybreak.redis")

Reply = list[Any]


class Skew:
    """Microseconds added to the server's clock; only tests change it."""

    def __init__(self) -> None:
        self.micros = 0


class LoopConnection:
    """The connection of one event loop. `connect_lock` lets one task connect for all."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.backoff = Backoff()
        self.connect_lock = asyncio.Lock()
        self.is_closed = False


class RedisClient:
    """Usable from any number of event loops; each has its own connection."""

    def __init__(
        self,
        address: Address,
        namespace: str,
        timeout: timedelta,
        clock: ServerClock,
        limit: ConnectLimit | None = None,
    ) -> None:
        self.address = address
        self.namespace = namespace
        self.prefix = f"{{{namespace}}}:".encode()
        self.timeout = timeout.total_seconds()
        self.clock = clock
        self._connect_limit = limit or FixedLimit()
        self.skew = Skew()
        self._loop_connections: dict[asyncio.AbstractEventLoop, LoopConnection] = {}
        self._closed = False
        self._pid = os.getpid()

    # -- scripts -------------------------------------------------------------------------------------------------------

    def header(self, now: datetime | None) -> tuple[bytes, str | int, int]:
        """The first arguments of every script. If `now` is None the script uses the server's clock, provided that it is
        close to the expected time: see prelude.lua."""
        if now is not None:
            return self.prefix, micros(now), self.skew.micros
        expected = self.clock.about()
        return self.prefix, "" if expected is None else f"~{expected}", self.skew.micros

    async def run(self, script: Script, args: Sequence[bytes | str | int], now: datetime | None = None) -> Reply:
        """Run a script and return its reply. Repeated only if the script reads, or if the server reports that nothing
        was done."""
        for attempt in range(MAX_ATTEMPTS):
            connection = await self.connection()
            rest = (1, *self.header(now), *args)
            sent_at = self.clock.steady()
            try:
                reply = await connection.call(("EVALSHA", script.sha, *rest))
                if isinstance(reply, ErrorReply) and faults.error_code(str(reply)) == "NOSCRIPT":
                    sent_at = self.clock.steady()
                    reply = await connection.call(("EVAL", script.text, *rest))
            except ConnectionLost as error:
                if script.reads and attempt == 0 and not self._closed and not patience.is_over():
                    continue
                if script.reads:
                    raise faults.read_failed(self.address, str(error)) from None
                raise faults.outcome_unknown(self.address, str(error)) from None
            if not isinstance(reply, ErrorReply):
                self.clock.note_reply(reply[0], sent_at)
                if self.clock.jump is not None:
                    await self._correct(connection, self.clock.jump)
                if len(reply) == 1:  # nothing was done: the server's clock was not where it was expected
                    continue
                return reply  # type: ignore[no-any-return]
            if not self.follow_redirect(str(reply)):
                raise self._translate(connection, str(reply))
            connection.close()
            self._loop_connection().connection = None  # the next connection goes to another node: no backoff
        raise StoreUnavailable(
            f"{self.address}: the cluster keeps redirecting to other nodes, or its clock keeps jumping; check the "
            "cluster's state"
        )

    async def _correct(self, connection: Connection, jump: Jump) -> None:
        """Correct the store's offset after a jump of the clock. If that fails, the next call tries again."""
        sent_at = self.clock.steady()
        try:
            reply = await connection.call(("EVAL", CORRECT.text, *self.correction_args(jump)))
        except ConnectionLost:
            return
        self.on_corrected(jump, reply, sent_at)

    def correction_args(self, jump: Jump) -> tuple[bytes | str | int, ...]:
        return (1, self.prefix, "", self.skew.micros, *correction_args(jump))

    def on_corrected(self, jump: Jump, reply: Any, sent_at: int) -> None:
        if isinstance(reply, ErrorReply):
            _log.warning(
                "%s: could not correct a jump of the server's clock by %.0f s: %s", self.address, jump.by / 1e6, reply
            )
            return
        stamp, done = reply
        self.clock.note_reply(stamp, sent_at)
        if done == 1:
            _log.warning(
                "%s: the server's clock jumped by %.0f s; delays, expiry and retention are not affected",
                self.address, jump.by / 1e6,
            )  # fmt: skip
        elif done == CORRECTION_REFUSED:
            self.clock.believe()

    def follow_redirect(self, reply: str) -> bool:
        """In a cluster a namespace lives on one node. Another node does nothing and replies with the right address."""
        if faults.error_code(reply) != "MOVED":
            return False
        host, _, port = reply.split()[2].rpartition(":")
        self.address = replace(self.address, host=host or self.address.host, port=int(port))
        return True

    def _translate(self, connection: Connection, reply: str) -> Exception:
        if faults.error_code(reply) in faults.RECONNECT_ERRORS:
            connection.close()
        return faults.error_reply(self.address, reply)

    async def command(self, *command: bytes | str | int) -> Any:
        """Run a command that changes nothing. An error reply is returned, not raised."""
        connection = await self.connection()
        try:
            return await connection.call(command)
        except ConnectionLost as error:
            raise StoreUnavailable(f"{self.address}: {error}") from None

    # -- connecting ----------------------------------------------------------------------------------------------------

    async def connection(self) -> Connection:
        self.check_ours()
        loop_connection = self._loop_connection()
        if loop_connection.connection is not None and loop_connection.connection.is_open:
            return loop_connection.connection
        left = patience.left()
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                return await self._ensure_connected(loop_connection)
        except TimeoutError as error:
            raise faults.unreachable(self.address, error) from None

    async def _ensure_connected(self, loop_connection: LoopConnection) -> Connection:
        async with loop_connection.connect_lock:
            self._check_open(loop_connection)
            if loop_connection.connection is None or not loop_connection.connection.is_open:
                if loop_connection.connection is not None:
                    loop_connection.backoff.lost()
                await self.back_off(loop_connection.backoff)
                # Store the connection first, then check for closing: `close` from another thread does it in the
                # opposite order, so one of the two closes the connection.
                loop_connection.connection = await self._connect_with_backoff(
                    self._open_connection(), loop_connection.backoff
                )
                self._check_open(loop_connection)
            return loop_connection.connection

    async def back_off(self, backoff: Backoff) -> None:
        """Wait before reconnecting, so that the clients of a restarted server do not all reconnect at once."""
        pause = backoff.pause(patience.wanted_within())
        if pause is None:
            raise faults.unreachable(self.address, TimeoutError())
        if pause:
            await asyncio.sleep(pause)

    async def _connect_with_backoff(self, connecting: Coroutine[Any, Any, Connection], backoff: Backoff) -> Connection:
        began = self.clock.steady()
        try:
            connection = await connecting
        except (StoreUnavailable, asyncio.CancelledError):
            backoff.failed((self.clock.steady() - began) / 1e6)
            raise
        backoff.connected()
        return connection

    def _check_open(self, loop_connection: LoopConnection) -> None:
        if self._closed or loop_connection.is_closed:
            if loop_connection.connection is not None:
                loop_connection.connection.close()
            raise StoreUnavailable(f"{self.address} is closed")

    def _loop_connection(self) -> LoopConnection:
        loop = asyncio.get_running_loop()
        if (loop_connection := self._loop_connections.get(loop)) is None:
            # A closed loop cannot close its connection: dropping the last reference does.
            for ended in [other for other in list(self._loop_connections) if other.is_closed()]:
                self._loop_connections.pop(ended, None)
            loop_connection = self._loop_connections[loop] = LoopConnection()
        return loop_connection

    def check_ours(self) -> None:
        if not self.is_ours:
            raise StoreUnavailable(f"{self.address} was opened before a fork: open a new store in the child")

    async def _open_connection(self) -> Connection:
        """Connect to the node that has the namespace, and check its version."""
        for _ in range(MAX_ATTEMPTS):
            connection = await self.connect()
            sent_at = self.clock.steady()
            try:
                reply = await connection.call(("EVAL", OPEN.text, 1, self.prefix, "", self.skew.micros, NEEDS))
            except BaseException as error:
                connection.close()
                if isinstance(error, ConnectionLost):
                    raise faults.connection_cut(self.address, str(error)) from None
                raise
            if not isinstance(reply, ErrorReply):
                self.clock.note_reply(reply[0], sent_at)
                return connection
            connection.close()
            if faults.is_channel_error(str(reply)):
                raise faults.no_channels(self.address, self.prefix)
            if not self.follow_redirect(str(reply)):
                raise faults.error_reply(self.address, str(reply))
        raise StoreUnavailable(
            f"{self.address}: the cluster keeps redirecting to other nodes; check the cluster's state"
        )

    async def connect(self) -> Connection:
        """Open a new connection and log in."""
        within, began = self.connect_within(), self.clock.steady()
        try:
            async with asyncio.timeout(within) as limit:
                connection = await self._connect_and_greet()
        except (OSError, TimeoutError, ssl.SSLError) as error:
            if limit.expired():
                self.timed_out(within)
            raise faults.unreachable(self.address, error) from None
        self.took((self.clock.steady() - began) / 1e6)
        return connection

    def connect_within(self) -> float:
        """Seconds; never more than the reply timeout, since the login waits for replies."""
        return min(self._connect_limit.seconds(self.address.connect_within), self.timeout)

    def took(self, seconds: float) -> None:
        self._connect_limit.took(self.address.connect_within, seconds)

    def timed_out(self, within: float) -> None:
        self._connect_limit.took(self.address.connect_within, within, late=True)

    async def _connect_and_greet(self) -> Connection:
        connection, commands = await Connection.connect(self.address, self.timeout), greeting(self.address)
        try:
            replies = await asyncio.gather(*(connection.call(command) for command in commands))
        except ConnectionLost as error:
            raise faults.connection_cut(self.address, str(error)) from None
        except BaseException:
            connection.close()
            raise
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ErrorReply) and command[0] != "CLIENT":
                connection.close()
                raise faults.error_reply(self.address, str(reply))
        return connection

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_ours(self) -> bool:
        """False in a forked child."""
        return self._pid == os.getpid()

    def reopen(self) -> None:
        if not self.is_ours:  # a forked child reopens the store: the inherited connections belong to its parent
            self._pid, self._loop_connections = os.getpid(), {}
        self._closed = False

    async def close(self) -> None:
        """Close all connections. Those of closed loops are closed already.

        A connection that is being opened meanwhile is closed by the task that opens it."""
        self._closed = True
        loop_connections, self._loop_connections = self._loop_connections, {}
        if not self.is_ours:
            return
        own = loop_connections.pop(asyncio.get_running_loop(), None)
        for loop, loop_connection in list(loop_connections.items()):
            loop_connection.is_closed = True
            if loop_connection.connection is not None and not loop.is_closed():
                with contextlib.suppress(RuntimeError):  # the loop was closed just now
                    loop.call_soon_threadsafe(loop_connection.connection.close)
        if own is not None:
            own.is_closed = True
            if own.connection is not None:
                await own.connection.close_and_wait()
