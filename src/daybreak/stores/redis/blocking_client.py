"""Group commit for callers without an event loop: one blocking connection, and one of the waiting threads sends for
all."""

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
from daybreak.stores.redis.connection import ConnectionLost, greeting
from daybreak.stores.redis.hiredis import Command, ErrorReply, ProtocolError, pack, reader
from daybreak.stores.redis.plain_submit import PlainSubmit
from daybreak.stores.redis.scripts import CORRECT, EXCHANGE, SUBMIT, Script
from daybreak.stores.redis.specs import Args
from daybreak.stores.steady_clock import Jump
from daybreak.system import patience

MAX_JOBS_PER_CALL: Final = 500


class BlockingConnection:
    """A connection whose calls block the thread."""

    def __init__(self, address: Address, timeout: float, limit: float | None = None) -> None:
        """`timeout` limits each reply, `limit` connecting and logging in together; in seconds."""
        limit = timeout if limit is None else limit
        deadline = time.monotonic() + limit
        try:
            if address.path is not None:
                self._socket = _unix_socket()
                self._socket.settimeout(limit)
                self._socket.connect(address.path)
            else:
                self._socket = socket.create_connection((address.host, address.port), limit)
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
                reply = self.call(command, deadline - time.monotonic())
            except ConnectionLost as error:
                raise faults.unreachable(address, error) from None
            if isinstance(reply, ErrorReply) and command[0] != "CLIENT":
                self.close()
                raise faults.error_reply(address, str(reply))

    def call(self, command: Command, limit: float | None = None) -> Any:
        """Send a command and return the reply (an error reply as a value); raises ConnectionLost. `limit` is in
        seconds, by default what is left of the caller's patience."""
        limit = patience.left(self._timeout) if limit is None else limit
        deadline = time.monotonic() + limit
        try:
            self._socket.settimeout(max(limit, 0.001))
            self._socket.sendall(pack(command))
            while (reply := self._reader.gets()) is False:
                self._reader.feed(self._receive())
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        except (OSError, ProtocolError) as error:
            self.close()
            is_late = isinstance(error, TimeoutError)
            why = f"no answer within {limit:.3g} s" if is_late else f"the connection broke ({error})"
            raise ConnectionLost(why) from None
        except BaseException:  # interrupted: this reply would be taken for that of the next command
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


class BlockingClient:
    """`insert` for threads; calls that arrive at the same time are sent together."""

    def __init__(self, client: RedisClient, plain: PlainSubmit) -> None:
        self._client = client
        self._plain_submit = plain
        self._group = GroupInsert(
            self._insert,
            most=MAX_JOBS_PER_CALL,
            interrupted=lambda: faults.outcome_unknown(client.address, "the call was interrupted"),
            late=self._late,
        )
        self._connection: BlockingConnection | None = None
        self._backoff = Backoff()
        self._is_closed = False

    def insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        self._client.check_ours()
        return self._group.insert(specs)

    def _late(self, was_sent: bool) -> StoreUnavailable:
        if was_sent:
            return faults.outcome_unknown(self._client.address, "no answer in time")
        return faults.unreachable(self._client.address, TimeoutError())

    def _insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        if (plain := self._plain_submit.args(specs)) is not None:
            accepted = self._plain_submit.to_inserted(specs, self._run(SUBMIT, plain))
            if accepted is not None:
                return accepted
        return replies.to_inserted(specs, self._run(EXCHANGE, requests.insert(specs))[2])

    def _run(self, script: Script, args: Args) -> Any:
        client = self._client
        for _ in range(5):
            if patience.is_over():
                raise faults.unreachable(client.address, TimeoutError())
            connection = self._ensure_connected()
            rest, sent_at = (1, *client.header(None), *args), client.clock.steady()
            try:
                reply = connection.call(("EVALSHA", script.sha, *rest))
                if isinstance(reply, ErrorReply) and faults.error_code(str(reply)) == "NOSCRIPT":
                    sent_at = client.clock.steady()
                    reply = connection.call(("EVAL", script.text, *rest))
            except ConnectionLost as error:
                raise faults.outcome_unknown(client.address, str(error)) from None
            if not isinstance(reply, ErrorReply):
                client.clock.note_reply(reply[0], sent_at)
                if client.clock.jump is not None:
                    self._correct(connection, client.clock.jump)
                if len(reply) == 1:  # nothing was done: the server's clock was not where it was expected
                    continue
                return reply
            if faults.error_code(str(reply)) in faults.RECONNECT_ERRORS:
                connection.close()
            if not client.follow_redirect(str(reply)):
                raise faults.error_reply(client.address, str(reply))
            connection.close()
            self._connection = None  # the next connection goes to another node: no backoff
        raise StoreUnavailable(
            f"{client.address}: the cluster keeps redirecting to other nodes, or its clock keeps jumping; check the "
            "cluster's state"
        )

    def _correct(self, connection: BlockingConnection, jump: Jump) -> None:
        sent_at = self._client.clock.steady()
        with contextlib.suppress(ConnectionLost):  # the next call tries again
            self._client.on_corrected(
                jump, connection.call(("EVAL", CORRECT.text, *self._client.correction_args(jump))), sent_at
            )

    def _ensure_connected(self) -> BlockingConnection:
        self._check_open()
        if self._connection is None or not self._connection.is_open:
            if self._connection is not None:
                self._backoff.lost()
            pause = self._backoff.pause(patience.wanted_within())
            if pause is None:
                raise faults.unreachable(self._client.address, TimeoutError())
            if pause:
                time.sleep(pause)
                self._check_open()
            self._connection = self._connect()
            self._check_open()
        return self._connection

    def _connect(self) -> BlockingConnection:
        client, limit, began = self._client, patience.left(self._client.connect_within()), time.monotonic()
        try:
            connection = BlockingConnection(client.address, client.timeout, limit)
        except StoreUnavailable:
            took = time.monotonic() - began
            self._backoff.failed(took)
            if took >= limit:
                client.timed_out(limit)
            raise
        self._backoff.connected()
        client.took(time.monotonic() - began)
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            self.close()  # a connection may have been opened meanwhile
            raise StoreUnavailable(f"{self._client.address} is closed")

    def close(self) -> None:
        self._is_closed = True
        if self._connection is not None and self._client.is_ours:
            self._connection.close()


def _unix_socket() -> socket.socket:
    if sys.platform == "win32":
        raise OSError("unix sockets are not supported on Windows")
    return socket.socket(socket.AF_UNIX)
