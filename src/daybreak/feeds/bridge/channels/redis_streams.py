"""Redis streams, over the connection of the Redis store. A topic is a stream with a consumer group.

An entry has the field `body`, perhaps `id`, and any other fields as headers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from daybreak.core.units import duration
from daybreak.feeds.bridge.channels.address import BrokerAddress
from daybreak.feeds.bridge.channels.channel import Channel, ChannelError, Message, Outgoing, Topics, translated
from daybreak.stores.redis.address import parse
from daybreak.stores.redis.connection import Connection, ConnectionLost, greeting
from daybreak.stores.redis.hiredis import ErrorReply, require_library

CLAIM_AFTER: Final = "30s"  # after this time the messages of a process that vanished are given to another one
FORGET_AFTER: Final = timedelta(days=1)  # consumers of processes that ended, without messages
TIMEOUT: Final = 10.0
_NAMES: Final = "daybreak-"


class RedisChannel(Channel):
    """Messages are known by the field `id`, or by the id of the entry."""

    extra = "redis"

    def __init__(self, address: BrokerAddress, topics: Topics) -> None:
        require_library()
        self._address = parse(address.url)
        self._topics = topics
        self._claim_after = duration(address.options.get("claim_after", CLAIM_AFTER), "claim_after")
        self._maxlen = address.options.get("maxlen")
        self._consumer = f"{_NAMES}{secrets.token_hex(8)}"
        self._connection: Connection | None = None
        self._claim_from: bytes | str = "0-0"
        self._claim_at = 0.0

    async def open(self) -> None:
        try:
            async with asyncio.timeout(self._address.connect_within.total_seconds()):
                with translated():
                    self._connection = await Connection.connect(self._address, TIMEOUT)
        except TimeoutError:
            raise ChannelError("the server does not answer") from None
        for command in greeting(self._address):
            await self._call(*command)
        if self._topics.incoming:
            stream, group = self._topics.incoming, self._topics.group
            await self._call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM", allowed="BUSYGROUP")
            await self._forget_consumers()

    async def _forget_consumers(self) -> None:
        """Delete the names of processes that ended long ago and left no messages."""
        stream, group = self._topics.incoming, self._topics.group
        for found in await self._call("XINFO", "CONSUMERS", stream, group):
            about = dict(zip(found[::2], found[1::2], strict=True))
            is_old = about[b"idle"] > FORGET_AFTER / timedelta(milliseconds=1)
            if is_old and not about[b"pending"] and about[b"name"].startswith(_NAMES.encode()):
                await self._call("XGROUP", "DELCONSUMER", stream, group, about[b"name"])

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def receive(self, limit: int, wait: timedelta) -> list[Message]:
        claimed = await self._claim(limit)
        if claimed:
            return claimed
        milliseconds = max(int(wait / timedelta(milliseconds=1)), 1)
        found = await self._call(
            "XREADGROUP", "GROUP", self._topics.group, self._consumer, "COUNT", limit, "BLOCK", milliseconds,
            "STREAMS", self._topics.incoming, ">",
        )  # fmt: skip
        return [] if found is None else [_message(entry) for entry in found[0][1]]

    async def _claim(self, limit: int) -> list[Message]:
        """Take over messages that another process received long ago and did not acknowledge."""
        now = asyncio.get_running_loop().time()
        if now < self._claim_at:
            return []
        reply = await self._call(
            "XAUTOCLAIM", self._topics.incoming, self._topics.group, self._consumer,
            int(self._claim_after / timedelta(milliseconds=1)), self._claim_from, "COUNT", limit,
        )  # fmt: skip
        self._claim_from = reply[0]
        if self._claim_from == b"0-0":
            self._claim_at = now + self._claim_after.total_seconds() / 2
        return [_message(entry) for entry in reply[1] if entry is not None and entry[1] is not None]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        if messages:
            ids = [message.receipt for message in messages]
            await self._call("XACK", self._topics.incoming, self._topics.group, *ids)

    async def hold(self, messages: Sequence[Message]) -> None:
        if messages:
            ids = [message.receipt for message in messages]
            await self._call(
                "XCLAIM", self._topics.incoming, self._topics.group, self._consumer, 0, *ids, "JUSTID"
            )  # fmt: skip

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> None:
        bound = () if self._maxlen is None else ("MAXLEN", "~", self._maxlen)
        calls = []
        for message in messages:
            fields: list[bytes | str] = ["body", message.body, "id", message.id]
            for name, text in message.headers.items():
                if name not in ("body", "id"):
                    fields += [name, text]
            calls.append(self._call("XADD", topic, *bound, "*", *fields))
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _call(self, *command: bytes | str | int, allowed: str = "") -> Any:
        connection = self._connection
        if connection is None or not connection.is_open:
            raise ChannelError("the connection to the server is closed")
        with translated(ConnectionLost):
            reply = await connection.call(command)
        if isinstance(reply, ErrorReply) and not (allowed and str(reply).startswith(allowed)):
            raise ChannelError(f"{command[0]!s}: {reply}")
        return reply


def _message(entry: Any) -> Message:
    id_, flat = entry
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    given = fields.pop(b"id", None)
    # An entry without a body is no message of ours: its reader says so.
    body = fields.pop(b"body", b"")
    return Message(
        body=body, id=None if given is None else given.decode(errors="replace"), position=id_.decode(),
        headers={name.decode(errors="replace"): text.decode(errors="replace") for name, text in fields.items()},
        receipt=id_,
    )  # fmt: skip
