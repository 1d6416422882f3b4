"""NATS JetStream, by nats-py. A topic is a subject; the group is a durable consumer that its processes share."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from daybreak.core.units import duration
from daybreak.feeds.bridge.channels.address import BrokerAddress
from daybreak.feeds.bridge.channels.channel import (
    Channel,
    ChannelError,
    Message,
    MessageTooLarge,
    Outgoing,
    Topics,
    translated,
)

ACK_WAIT: Final = "30s"  # after this time an unacknowledged message is delivered again
TIMEOUT: Final = 10.0
MESSAGE_ID: Final = "Nats-Msg-Id"
_ERRORS: Final = (NatsError, JetStreamError)


class NatsChannel(Channel):
    """Messages are known by the header Nats-Msg-Id, or by their number in the stream."""

    extra = "nats"

    def __init__(self, address: BrokerAddress, topics: Topics) -> None:
        self._address = address
        self._topics = topics
        self._ack_wait = duration(address.options.get("ack_wait", ACK_WAIT), "ack_wait").total_seconds()
        self._client: Any = None
        self._streams: dict[str, str] = {}
        self._born = ""
        self._subscription: JetStreamContext.PullSubscription | None = None

    async def open(self) -> None:
        scheme, _, _ = self._address.url.partition("://")
        with translated(*_ERRORS):
            self._client = NatsClient()
            async with asyncio.timeout(TIMEOUT):  # it tries an address that is not there again and again
                await self._client.connect(
                    [f"{scheme}://{host}" for host in self._address.hosts.split(",")], name="daybreak",
                    user=self._address.username, password=self._address.password,
                    allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0.1, connect_timeout=5,
                    error_cb=_ignore,
                )  # fmt: skip
            self._stream = self._client.jetstream(timeout=TIMEOUT)
            if self._topics.incoming:
                await self._subscribe()

    async def _subscribe(self) -> None:
        subject = self._topics.incoming
        stream = await self._provide(subject)
        info = await self._stream.stream_info(stream)
        created = info.created
        # The numbers of a stream that was deleted and created anew begin with 1 again.
        self._born = str(int(created.timestamp())) if created is not None else ""
        durable = re.sub(r"[^A-Za-z0-9_-]", "_", f"{self._topics.group}-{subject}")
        config = ConsumerConfig(
            durable_name=durable, ack_policy=AckPolicy.EXPLICIT, ack_wait=self._ack_wait, max_deliver=-1,
            filter_subject=subject,
        )  # fmt: skip
        self._subscription = await self._stream.pull_subscribe(subject, durable=durable, stream=stream, config=config)

    async def _provide(self, subject: str) -> str:
        """The stream that keeps a subject."""
        if subject not in self._streams:
            try:
                self._streams[subject] = await self._stream.find_stream_name_by_subject(subject)
            except NotFoundError:
                name = re.sub(r"[^A-Za-z0-9_-]", "_", subject)
                await self._stream.add_stream(StreamConfig(name=name, subjects=[subject], storage=StorageType.FILE))
                self._streams[subject] = name
        return self._streams[subject]

    async def close(self) -> None:
        if self._client is None:
            return
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._client.close(), 5)
        # A client that was still connecting leaves its socket open.
        transport = self._client._transport  # noqa: SLF001 - it has no other name
        if transport is not None:
            with contextlib.suppress(Exception):
                transport.close()

    async def receive(self, limit: int, wait: timedelta) -> list[Message]:
        assert self._subscription is not None
        self._check_open()
        with translated(*_ERRORS):
            try:
                found = await self._subscription.fetch(limit, timeout=wait.total_seconds())
            except TimeoutError:  # of the library, and of asyncio itself
                self._check_open()
                return []
        return [self._message(each) for each in found]

    def _check_open(self) -> None:
        if self._client is None or not self._client.is_connected:
            raise ChannelError("the connection to the server is closed")

    def _message(self, received: Any) -> Message:
        given = dict(received.headers or {})
        headers = {name: text for name, text in given.items() if not name.startswith("Nats-")}  # orders to the server
        metadata = received.metadata
        return Message(
            body=received.data, id=given.get(MESSAGE_ID),
            position=f"{metadata.stream} {self._born} {metadata.sequence.stream}", headers=headers, receipt=received,
        )  # fmt: skip

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        self._check_open()
        with translated(*_ERRORS):
            for message in messages:
                await message.receipt.ack()
            await self._client.flush(TIMEOUT)

    async def hold(self, messages: Sequence[Message]) -> None:
        self._check_open()
        with translated(*_ERRORS):
            for message in messages:
                await message.receipt.in_progress()

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> None:
        self._check_open()
        sent = [(message.body, self._headers(message)) for message in messages]
        with translated(*_ERRORS):
            await self._provide(topic)
            results = await asyncio.gather(
                *(self._stream.publish(topic, body, timeout=TIMEOUT, headers=headers) for body, headers in sent),
                return_exceptions=True,
            )  # fmt: skip
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    def _headers(self, message: Outgoing) -> dict[str, str]:
        """The headers of a message. The server closes the connection over one that is too large with them."""
        headers = {**message.headers, MESSAGE_ID: message.id, "Content-Type": message.content_type}
        lines = sum(len(f"{name}: {text}\r\n".encode()) for name, text in headers.items())
        if len(message.body) + len("NATS/1.0\r\n\r\n") + lines > self._client.max_payload:
            raise MessageTooLarge(f"the server takes messages of {self._client.max_payload:,} bytes")
        return headers


async def _ignore(_: Exception) -> None:
    """The error also ends the operation that met it."""
