"""The line to the server: connects when needed, runs scripts, and says what became of a question."""

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

from daybreak.core.errors import StoreTooNew, StoreUnavailable
from daybreak.core.units import micros
from daybreak.store.protocol import ConnectLimit, FixedLimit
from daybreak.stores.backoff import Backoff
from daybreak.stores.redis import faults
from daybreak.stores.redis.address import Address
from daybreak.stores.redis.connection import Link, Lost, greeting
from daybreak.stores.redis.hiredis import Refusal
from daybreak.stores.redis.scripts import CORRECT, OPEN, Script
from daybreak.stores.redis.server_clock import ServerClock, correction
from daybreak.stores.steady_clock import Jump
from daybreak.system import patience

VERSION: Final = 1  # of how things are kept
NEEDS: Final = 1  # the oldest that can read what we write
_ATTEMPTS: Final = 5
REFUSED: Final = 2  # what correct.lua replies where others saw the clock run evenly
_log = logging.getLogger("daybreak.redis")

Reply = list[Any]


class Skew:
    """What is added to the server's clock: a seam for tests."""

    def __init__(self) -> None:
        self.micros = 0


class Seat:
    """The connection of one loop, and the door before it: one connects for all."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.backoff = Backoff()
        self.door = asyncio.Lock()
        self.is_closed = False


class RedisClient:
    """From any number of loops; each has a connection of its own."""

    def __init__(
        self,
        address: Address,
        namespace: str,
        timeout: timedelta,
        hands: ServerClock,
        limit: ConnectLimit | None = None,
    ) -> None:
        self.address = address
        self.namespace = namespace
        self.prefix = f"{{{namespace}}}:".encode()
        self.timeout = timeout.total_seconds()
        self.hands = hands
        self._limit = limit or FixedLimit()
        self.skew = Skew()
        self._seats: dict[asyncio.AbstractEventLoop, Seat] = {}
        self._closed = False
        self._pid = os.getpid()

    # -- scripts -------------------------------------------------------------------------------------------------------

    def header(self, now: datetime | None) -> tuple[bytes, str | int, int]:
        """Where no time is given it is the server's, if that is about what we expect: see prelude.lua."""
        if now is not None:
            return self.prefix, micros(now), self.skew.micros
        about = self.hands.about()
        return self.prefix, "" if about is None else f"~{about}", self.skew.micros

    async def run(self, script: Script, args: Sequence[bytes | str | int], now: datetime | None = None) -> Reply:
        """The script's answer. Sent once, unless it only reads or the server says that it did nothing."""
        for attempt in range(_ATTEMPTS):
            link = await self.link()
            rest = (1, *self.header(now), *args)
            sent = self.hands.steady()
            try:
                reply = await link.ask(("EVALSHA", script.sha, *rest))
                if isinstance(reply, Refusal) and faults.word(str(reply)) == "NOSCRIPT":
                    sent = self.hands.steady()
                    reply = await link.ask(("EVAL", script.text, *rest))
            except Lost as error:
                if script.reads and attempt == 0 and not self._closed and not patience.is_over():
                    continue
                if script.reads:
                    raise faults.unread(self.address, str(error)) from None
                raise faults.unknown(self.address, str(error)) from None
            if not isinstance(reply, Refusal):
                self.hands.hear(reply[0], sent)
                if self.hands.jump is not None:
                    await self._correct(link, self.hands.jump)
                if len(reply) == 1:  # nothing was done: the clock was not where we expected it
                    continue
                return reply  # type: ignore[no-any-return]
            if not self.follow(str(reply)):
                raise self._refusal(link, str(reply))
            link.close()
            self._seat().link = None  # the next one is at another node: no reason to wait
        raise StoreUnavailable(f"{self.address}: the cluster sends us from node to node, or its clock keeps jumping")

    async def _correct(self, link: Link, jump: Jump) -> None:
        """Ask the store to go on as if its clock had not jumped. What fails is tried again with the next question."""
        sent = self.hands.steady()
        try:
            reply = await link.ask(("EVAL", CORRECT.text, *self.correction(jump)))
        except Lost:
            return
        self.corrected(jump, reply, sent)

    def correction(self, jump: Jump) -> tuple[bytes | str | int, ...]:
        return (1, self.prefix, "", self.skew.micros, *correction(jump))

    def corrected(self, jump: Jump, reply: Any, sent: int) -> None:
        if isinstance(reply, Refusal):
            _log.warning("%s: could not correct a jump of the clock by %.0f s: %s", self.address, jump.by / 1e6, reply)
            return
        stamp, done = reply
        self.hands.hear(stamp, sent)
        if done == 1:
            _log.warning(
                "%s: the server's clock jumped by %.0f s; delays, expiry and retention go on as if it had not",
                self.address, jump.by / 1e6,
            )  # fmt: skip
        elif done == REFUSED:
            self.hands.believe()

    def follow(self, reply: str) -> bool:
        """In a cluster a namespace lives on one node; one that does not have it says who does, and did nothing."""
        if faults.word(reply) != "MOVED":
            return False
        host, _, port = reply.split()[2].rpartition(":")
        self.address = replace(self.address, host=host or self.address.host, port=int(port))
        return True

    def _refusal(self, link: Link, reply: str) -> Exception:
        if faults.word(reply) in faults.STALE:
            link.close()
        return faults.refused(self.address, reply)

    async def command(self, *command: bytes | str | int) -> Any:
        """A plain question that changes nothing. Error replies are values."""
        link = await self.link()
        try:
            return await link.ask(command)
        except Lost as error:
            raise StoreUnavailable(f"{self.address}: {error}") from None

    # -- connecting ----------------------------------------------------------------------------------------------------

    async def link(self) -> Link:
        self.check_ours()
        seat = self._seat()
        if seat.link is not None and seat.link.is_open:
            return seat.link
        left = patience.left()
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                return await self._connected(seat)
        except TimeoutError as error:
            raise faults.unreachable(self.address, error) from None

    async def _connected(self, seat: Seat) -> Link:
        async with seat.door:
            self._check_open(seat)
            if seat.link is None or not seat.link.is_open:
                if seat.link is not None:
                    seat.backoff.lost()
                await self.rest(seat.backoff)
                # First seated, then looked at: whoever closes from another thread does it the other way round.
                seat.link = await self._tried(self._dial(), seat.backoff)
                self._check_open(seat)
            return seat.link

    async def rest(self, backoff: Backoff) -> None:
        """Not all who lost this server connect again at once."""
        pause = backoff.pause(patience.wanted_within())
        if pause is None:
            raise faults.unreachable(self.address, TimeoutError())
        if pause:
            await asyncio.sleep(pause)

    async def _tried(self, dialing: Coroutine[Any, Any, Link], backoff: Backoff) -> Link:
        began = self.hands.steady()
        try:
            link = await dialing
        except (StoreUnavailable, asyncio.CancelledError):
            backoff.failed((self.hands.steady() - began) / 1e6)
            raise
        backoff.connected()
        return link

    def _check_open(self, seat: Seat) -> None:
        if self._closed or seat.is_closed:
            if seat.link is not None:
                seat.link.close()
            raise StoreUnavailable(f"{self.address} is closed")

    def _seat(self) -> Seat:
        loop = asyncio.get_running_loop()
        if (seat := self._seats.get(loop)) is None:
            # A loop that has ended cannot close a connection any more: it closes when nobody knows of it.
            for ended in [other for other in list(self._seats) if other.is_closed()]:
                self._seats.pop(ended, None)
            seat = self._seats[loop] = Seat()
        return seat

    def check_ours(self) -> None:
        if not self.is_ours:
            raise StoreUnavailable(f"{self.address} was opened before a fork: open a store of its own in the child")

    async def _dial(self) -> Link:
        """A connection to the node that has our namespace, in a form we know."""
        for _ in range(_ATTEMPTS):
            link = await self.dial()
            sent = self.hands.steady()
            try:
                reply = await link.ask(("EVAL", OPEN.text, 1, self.prefix, "", self.skew.micros, VERSION, NEEDS))
            except BaseException as error:
                link.close()
                if isinstance(error, Lost):
                    raise faults.cut(self.address, str(error)) from None
                raise
            if not isinstance(reply, Refusal):
                self.hands.hear(reply[0], sent)
                return self._check(link, reply)
            link.close()
            if faults.is_channel(str(reply)):
                raise faults.no_channels(self.address, self.prefix)
            if not self.follow(str(reply)):
                raise faults.refused(self.address, str(reply))
        raise StoreUnavailable(f"{self.address}: the cluster sends us from node to node")

    def _check(self, link: Link, reply: Reply) -> Link:
        if int(reply[2]) > VERSION:
            link.close()
            raise StoreTooNew(
                f"{self.address}: namespace {self.namespace!r} was written by a newer Daybreak "
                f"(schema {int(reply[1])}, this one knows {VERSION}): upgrade this installation; nothing was changed"
            )
        return link

    async def dial(self) -> Link:
        """A new connection, greeted; nothing is asked of it yet."""
        within, began = self.connect_within(), self.hands.steady()
        try:
            async with asyncio.timeout(within) as limit:
                link = await self._greeted()
        except (OSError, TimeoutError, ssl.SSLError) as error:
            if limit.expired():
                self.was_late(within)
            raise faults.unreachable(self.address, error) from None
        self.took((self.hands.steady() - began) / 1e6)
        return link

    def connect_within(self) -> float:
        """Seconds; never more than an answer may take, since the greeting waits for one."""
        return min(self._limit.seconds(self.address.connect_within), self.timeout)

    def took(self, seconds: float) -> None:
        self._limit.took(self.address.connect_within, seconds)

    def was_late(self, within: float) -> None:
        self._limit.took(self.address.connect_within, within, late=True)

    async def _greeted(self) -> Link:
        link, said = await Link.connect(self.address, self.timeout), greeting(self.address)
        try:
            replies = await asyncio.gather(*(link.ask(command) for command in said))
        except Lost as error:
            raise faults.cut(self.address, str(error)) from None
        except BaseException:
            link.close()
            raise
        for command, reply in zip(said, replies, strict=True):
            if isinstance(reply, Refusal) and command[0] != "CLIENT":
                link.close()
                raise faults.refused(self.address, str(reply))
        return link

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_ours(self) -> bool:
        """Not inherited by a fork."""
        return self._pid == os.getpid()

    def reopen(self) -> None:
        if not self.is_ours:  # a forked child that opens it anew: what was inherited is not its own
            self._pid, self._seats = os.getpid(), {}
        self._closed = False

    async def close(self) -> None:
        """Let go of all connections; those of loops that have ended went with them.

        One that is being made meanwhile is given up by who makes it."""
        self._closed = True
        seats, self._seats = self._seats, {}
        if not self.is_ours:
            return
        mine = seats.pop(asyncio.get_running_loop(), None)
        for loop, seat in list(seats.items()):
            seat.is_closed = True
            if seat.link is not None and not loop.is_closed():
                with contextlib.suppress(RuntimeError):  # it ended just now
                    loop.call_soon_threadsafe(seat.link.close)
        if mine is not None:
            mine.is_closed = True
            if mine.link is not None:
                await mine.link.leave()
