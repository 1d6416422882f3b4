"""Kafka, by confluent-kafka. Its calls block, so each channel has a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from daybreak.feeds.bridge.channels.address import BrokerAddress
from daybreak.feeds.bridge.channels.call_thread import CallThread
from daybreak.feeds.bridge.channels.channel import (
    Channel,
    ChannelError,
    Message,
    MessageTooLarge,
    Outgoing,
    Topics,
    translated,
)
from daybreak.feeds.bridge.channels.offsets import Offsets

CLOSE_TIMEOUT: Final = 10.0  # leaving the group needs an answer of the brokers
DELIVERY_TIMEOUT: Final = timedelta(seconds=10)
COMMIT_LOST: Final = frozenset({
    KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH, KafkaError._STATE,  # noqa: SLF001 - the library's own name
})  # fmt: skip
MESSAGE_ID: Final = ("message-id", "ce_id", "id")  # headers

T = TypeVar("T")


class KafkaChannel(Channel):
    """Messages are known by the header `message-id`, or by partition and offset. Kafka's own keys only choose the
    partition, so they are not read. Consumers start with the oldest message, and commit after each batch."""

    extra = "kafka"

    def __init__(self, address: BrokerAddress, topics: Topics) -> None:
        self._address = address
        self._topics = topics
        self._thread = CallThread("daybreak-kafka")
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._offsets = Offsets()
        self._early: list[Message] = []  # what a poll brought while messages were held
        self._is_paused = False

    def _settings(self, **more: Any) -> dict[str, Any]:
        login: dict[str, Any] = {}
        if self._address.username:
            login = {"sasl.username": self._address.username, "sasl.password": self._address.password or ""}
        return {"bootstrap.servers": self._address.hosts, "client.id": "daybreak", **login, **more}

    async def _run(self, call: Callable[[], T]) -> T:
        with translated(KafkaException):
            return await self._thread.call(call)

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._run(self._open)

    def _open(self) -> None:
        timeout = int(DELIVERY_TIMEOUT / timedelta(milliseconds=1))
        options = self._address.options
        both = {name: value for name, value in options.items() if not _is_consumers(name)}
        self._producer = Producer(
            {**self._settings(**{"enable.idempotence": True, "message.timeout.ms": timeout}), **both}, logger=_Silent()
        )
        # A connection is made only when it is used: ask, so that a wrong address is noticed here.
        self._producer.list_topics(timeout=10)
        if self._topics.incoming:
            fixed = {"group.id": self._topics.group, "enable.auto.commit": False, "enable.auto.offset.store": False}
            defaults = {
                "auto.offset.reset": "earliest", "allow.auto.create.topics": True, "queued.max.messages.kbytes": 16384,
            }  # fmt: skip
            self._consumer = Consumer({**self._settings(**defaults), **options, **fixed}, logger=_Silent())
            self._consumer.subscribe([self._topics.incoming], on_revoke=self._on_revoked, on_lost=self._on_revoked)

    def _on_revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._offsets.forget(partition.partition)

    async def receive(self, limit: int, wait: timedelta) -> list[Message]:
        return await self._run(lambda: self._receive(limit, wait.total_seconds()))

    def _receive(self, limit: int, seconds: float) -> list[Message]:
        assert self._consumer is not None
        if self._is_paused:
            self._consumer.resume(self._consumer.assignment())
            self._is_paused = False
        if self._early:
            found, self._early = self._early, []
            return found
        received = self._consumer.consume(limit, min(seconds, 0.1))
        if not received:
            received = self._consumer.consume(1, seconds)
        return self._messages(received)

    def _messages(self, received: list[Any]) -> list[Message]:
        found = []
        for each in received:
            error = each.error()
            if error is None:
                found.append(self._message(each))
            elif error.fatal() or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise ChannelError(str(error))
        return found

    def _message(self, received: Any) -> Message:
        partition, offset = received.partition(), received.offset()
        self._offsets.received(partition, offset)
        headers = {name: (value or b"").decode(errors="replace") for name, value in received.headers() or ()}
        given = next((headers[name] for name in MESSAGE_ID if headers.get(name)), None)
        return Message(
            body=received.value() or b"", id=given, position=f"partition {partition} offset {offset}",
            headers=headers, receipt=(partition, offset),
        )  # fmt: skip

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        receipts = [message.receipt for message in messages]
        await self._run(lambda: self._commit(receipts))

    def _commit(self, receipts: list[tuple[int, int]]) -> None:
        assert self._consumer is not None
        moved = self._offsets.done(receipts)
        if not moved:
            return
        offsets = [TopicPartition(self._topics.incoming, part, offset) for part, offset in moved.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # The partition is another process's now. It will find that the messages are known.
            if error.args[0].code() not in COMMIT_LOST:
                raise

    async def hold(self, messages: Sequence[Message]) -> None:  # noqa: ARG002 - the whole member is kept alive
        await self._run(self._poll_paused)

    def _poll_paused(self) -> None:
        """Stay a member of the group: who does not poll is taken for dead."""
        assert self._consumer is not None
        self._consumer.pause(self._consumer.assignment())
        self._is_paused = True
        received = self._consumer.poll(0)
        if received is not None:
            self._early += self._messages([received])

    # -- publishing ----------------------------------------------------------------------------------------------------

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> None:
        await self._run(lambda: self._publish(topic, messages))

    def _publish(self, topic: str, messages: Sequence[Outgoing]) -> None:
        assert self._producer is not None
        errors: list[KafkaError] = []
        confirmed = 0

        def on_delivery(error: KafkaError | None, _: Any) -> None:
            nonlocal confirmed
            if error is None:
                confirmed += 1
            else:
                errors.append(error)

        for message in messages:
            headers: list[tuple[str, str | bytes | None]] = [
                (name, text) for name, text in message.headers.items() if name not in MESSAGE_ID
            ]
            try:
                self._producer.produce(
                    topic, message.body, key=message.key or None, on_delivery=on_delivery,
                    headers=[*headers, ("content-type", message.content_type), ("message-id", message.id)],
                )  # fmt: skip
            except KafkaException as error:
                errors.append(error.args[0])
        self._producer.flush(2 * DELIVERY_TIMEOUT.total_seconds())
        if any(error.code() == KafkaError.MSG_SIZE_TOO_LARGE for error in errors):
            raise MessageTooLarge("the brokers, or message.max.bytes of this producer, take no message of this size")
        if errors:
            raise ChannelError(str(errors[0]))
        if confirmed != len(messages):
            raise ChannelError(f"the brokers confirmed {confirmed} of {len(messages)} messages in time")

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._run(self._close), CLOSE_TIMEOUT)
        self._thread.end()

    def _close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        if self._consumer is not None:
            self._consumer.close()


def _is_consumers(name: str) -> bool:
    return name.startswith(
        ("group.", "session.", "auto.", "max.poll", "heartbeat.", "fetch.", "queued.max.messages.kb")
    )


class _Silent:
    """Takes the library's own log lines: it logs every failed try to connect. Errors are reported where they matter."""

    def log(self, *_: Any) -> None:
        """Nothing is written."""
