"""Callers without a loop: one blocking connection, shared by all threads that wait. One of them sends for all."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.store.protocol import Inserted
from daybreak.stores.backoff import Backoff
from daybreak.stores.group_insert import GroupInsert
from daybreak.stores.redis import faults, replies, requests
from daybreak.stores.redis.address import Address
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.connection import Lost, greeting
from daybreak.stores.redis.hiredis import Command, Garbled, Refusal, pack, reader
from daybreak.stores.redis.plain_submit import ShortWay
from daybreak.stores.redis.scripts import CORRECT, EXCHANGE, SUBMIT, Script
from daybreak.stores.redis.specs import Args
from daybreak.stores.steady_clock import Jump
from daybreak.system import patience

JOBS_PER_CALL: Final = 500  # jobs that are sent together


class Wire:
    """A connection that blocks its caller."""

    def __init__(self, address: Address, timeout: float, within: float | None = None) -> None:
        """`timeout` is that of an answer, `within` that of all until the connection is greeted, in seconds."""
        within = timeout if within is None else within
        until = time.monotonic() + within
        try:
            if address.path is not None:
                self._socket = _unix_socket()
                self._socket.settimeout(within)
                self._socket.connect(address.path)
            else:
                self._socket = socket.create_connection((address.host, address.port), within)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if (context := address.context()) is not None:
                    self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
        except (OSError, ssl.SSLError) as error:
            if hasattr(self, "_socket"):
                self._socket.close()
            raise faults.unreachable(address, error) from None
        self._reader = reader()
        self._timeout = timeout
        self.is_open = True
        for command in greeting(address):
            try:
                reply = self.ask(command, until - time.monotonic())
            except Lost as error:
                raise faults.unreachable(address, error) from None
            if isinstance(reply, Refusal) and command[0] != "CLIENT":
                self.close()
                raise faults.refused(address, str(reply))

    def ask(self, command: Command, within: float | None = None) -> Any:
        """The reply, an error reply as a value; raises Lost. `within` so many seconds, or the caller's patience."""
        within = patience.left(self._timeout) if within is None else within
        until = time.monotonic() + within
        try:
            self._socket.settimeout(max(within, 0.001))
            self._socket.sendall(pack(command))
            while (reply := self._reader.gets()) is False:
                self._reader.feed(self._receive())
                self._socket.settimeout(max(until - time.monotonic(), 0.001))
        except (OSError, Garbled) as error:
            self.close()
            is_late = isinstance(error, TimeoutError)
            why = f"no answer within {within:.3g} s" if is_late else f"the connection broke ({error})"
            raise Lost(why) from None
        except BaseException:  # interrupted: the answer would be taken for that of the next question
            self.close()
            raise
        return reply

    def _receive(self) -> bytes:
        if data := self._socket.recv(65536):
            return data
        raise ConnectionError("closed by the server")

    def close(self) -> None:
        self.is_open = False
        self._socket.close()


class Caller:
    def __init__(self, line: RedisClient, short: ShortWay) -> None:
        self._line = line
        self._short = short
        self._turns = GroupInsert(
            self._insert,
            most=JOBS_PER_CALL,
            interrupted=lambda: faults.unknown(line.address, "the call was interrupted"),
            late=self._late,
        )
        self._wire: Wire | None = None
        self._backoff = Backoff()
        self._closed = False

    def insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        self._line.check_ours()
        return self._turns.insert(specs)

    def _late(self, was_sent: bool) -> StoreUnavailable:
        if was_sent:
            return faults.unknown(self._line.address, "no answer in time")
        return faults.unreachable(self._line.address, TimeoutError())

    def _insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        if (short := self._short.args(specs)) is not None:
            accepted = self._short.answered(specs, self._ask(SUBMIT, short))
            if accepted is not None:
                return accepted
        return replies.inserted(specs, self._ask(EXCHANGE, requests.insert(specs))[2])

    def _ask(self, script: Script, args: Args) -> Any:
        line = self._line
        for _ in range(5):
            if patience.is_over():
                raise faults.unreachable(line.address, TimeoutError())
            wire = self._connected()
            rest, sent = (1, *line.header(None), *args), line.hands.steady()
            try:
                reply = wire.ask(("EVALSHA", script.sha, *rest))
                if isinstance(reply, Refusal) and faults.word(str(reply)) == "NOSCRIPT":
                    sent = line.hands.steady()
                    reply = wire.ask(("EVAL", script.text, *rest))
            except Lost as error:
                raise faults.unknown(line.address, str(error)) from None
            if not isinstance(reply, Refusal):
                line.hands.hear(reply[0], sent)
                if line.hands.jump is not None:
                    self._correct(wire, line.hands.jump)
                if len(reply) == 1:  # nothing was done: the clock was not where we expected it
                    continue
                return reply
            if faults.word(str(reply)) in faults.STALE:
                wire.close()
            if not line.follow(str(reply)):
                raise faults.refused(line.address, str(reply))
            wire.close()
            self._wire = None  # the next one is at another node: no reason to wait
        raise StoreUnavailable(f"{line.address}: the cluster sends us from node to node, or its clock keeps jumping")

    def _correct(self, wire: Wire, jump: Jump) -> None:
        sent = self._line.hands.steady()
        with contextlib.suppress(Lost):  # tried again with the next question
            self._line.corrected(jump, wire.ask(("EVAL", CORRECT.text, *self._line.correction(jump))), sent)

    def _connected(self) -> Wire:
        self._check_open()
        if self._wire is None or not self._wire.is_open:
            if self._wire is not None:
                self._backoff.lost()
            pause = self._backoff.pause(patience.wanted_within())
            if pause is None:
                raise faults.unreachable(self._line.address, TimeoutError())
            if pause:
                time.sleep(pause)
                self._check_open()
            self._wire = self._connect()
            self._check_open()
        return self._wire

    def _connect(self) -> Wire:
        line, within, began = self._line, patience.left(self._line.connect_within()), time.monotonic()
        try:
            wire = Wire(line.address, line.timeout, within)
        except StoreUnavailable:
            took = time.monotonic() - began
            self._backoff.failed(took)
            if took >= within:
                line.was_late(within)
            raise
        self._backoff.connected()
        line.took(time.monotonic() - began)
        return wire

    def _check_open(self) -> None:
        if self._closed:
            self.close()  # also what was connected meanwhile
            raise StoreUnavailable(f"{self._line.address} is closed")

    def close(self) -> None:
        self._closed = True
        if self._wire is not None and self._line.is_ours:
            self._wire.close()


def _unix_socket() -> socket.socket:
    if sys.platform == "win32":
        raise OSError("there are no unix sockets here")
    return socket.socket(socket.AF_UNIX)
