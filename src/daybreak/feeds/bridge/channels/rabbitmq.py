"""RabbitMQ, by aio-pika. A topic is a durable queue; every process of the group consumes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, AbstractIncomingMessage
from aio_pika.exceptions import AMQPError, ChannelNotFoundEntity, DeliveryError

from daybreak.feeds.bridge.channels.address import BrokerAddress
from daybreak.feeds.bridge.channels.channel import Channel, ChannelError, Message, Outgoing, Topics, translated

PREFETCH: Final = 500  # messages that the server sends before one of them is acknowledged
TIMEOUT: Final = 10.0
_ERRORS: Final = (AMQPError, RuntimeError)  # aiormq raises RuntimeError for a connection that is closing
_OFFSET: Final = "x-stream-offset"


class RabbitChannel(Channel):
    """Messages are known by their message_id, or, in a stream of RabbitMQ, by their offset. A message of another queue
    that has no message_id has no identity."""

    extra = "rabbitmq"

    def __init__(self, address: BrokerAddress, topics: Topics) -> None:
        self._address = address
        self._topics = topics
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None
        self._received: asyncio.Queue[AbstractIncomingMessage | None] = asyncio.Queue()
        self._known: set[str] = set()

    async def open(self) -> None:
        with translated(*_ERRORS):
            self._connection = await aio_pika.connect(self._address.url, timeout=TIMEOUT)
            self._connection.close_callbacks.add(self._on_closed)
            if self._topics.incoming:
                await self._provide(self._topics.incoming)
            self._channel = channel = await self._new_channel()
            channel.close_callbacks.add(self._on_closed)
            name = self._address.options.get("exchange")
            self._exchange = await channel.get_exchange(name) if name else channel.default_exchange
            if self._topics.incoming:
                await channel.set_qos(prefetch_count=PREFETCH)
                queue = await channel.get_queue(self._topics.incoming)
                await queue.consume(self._on_message, timeout=TIMEOUT)

    async def _new_channel(self) -> AbstractChannel:
        assert self._connection is not None
        return await self._connection.channel(publisher_confirms=True, on_return_raises=True)

    async def _provide(self, queue: str) -> None:
        """Create a queue, unless there is one of this name, of whatever kind."""
        if queue in self._known:
            return
        probe = await self._new_channel()
        try:
            await probe.declare_queue(queue, passive=True, timeout=TIMEOUT)
        except ChannelNotFoundEntity:  # which closes the channel
            probe = await self._new_channel()
            await probe.declare_queue(queue, durable=True, timeout=TIMEOUT)
        finally:
            with contextlib.suppress(*_ERRORS):
                await probe.close()
        self._known.add(queue)

    def _on_closed(self, *_: Any) -> None:
        self._received.put_nowait(None)

    async def _on_message(self, message: AbstractIncomingMessage) -> None:
        self._received.put_nowait(message)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close_callbacks.discard(self._on_closed)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._connection.close(), 5)

    async def receive(self, limit: int, wait: timedelta) -> list[Message]:
        found: list[Message] = []
        while len(found) < limit:
            try:
                if found:
                    received = self._received.get_nowait()
                else:
                    received = await asyncio.wait_for(self._received.get(), wait.total_seconds())
            except (TimeoutError, asyncio.QueueEmpty):
                break
            if received is None:
                raise ChannelError("the server closed the connection or the channel")
            found.append(_message(received))
        return found

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        with translated(*_ERRORS):
            for message in messages:
                await message.receipt.ack()

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> None:
        to_exchange = topic == self._topics.outgoing and "exchange" in self._address.options
        assert self._channel is not None
        assert self._exchange is not None
        exchange = self._exchange if to_exchange else self._channel.default_exchange
        with translated(*_ERRORS):
            if not to_exchange:
                await self._provide(topic)
            results = await asyncio.gather(
                *(
                    exchange.publish(_amqp(message), topic, mandatory=True, timeout=TIMEOUT)
                    for message in messages
                ),
                return_exceptions=True,
            )  # fmt: skip
            for result in results:
                if isinstance(result, DeliveryError):
                    raise ChannelError(f"no queue takes messages of {topic!r}: bind one to the exchange")
                if isinstance(result, BaseException):
                    raise result


def _amqp(message: Outgoing) -> aio_pika.Message:
    return aio_pika.Message(
        message.body, message_id=message.id, content_type=message.content_type,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT, headers=dict(message.headers),
    )  # fmt: skip


def _message(received: AbstractIncomingMessage) -> Message:
    headers = {name: str(value) for name, value in received.headers.items()}
    offset = headers.get(_OFFSET)
    return Message(
        body=received.body, id=received.message_id or None, position=None if offset is None else f"offset {offset}",
        headers={name: text for name, text in headers.items() if not name.startswith("x-")}, receipt=received,
    )  # fmt: skip
