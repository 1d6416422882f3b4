"""Brokers behind one protocol: `channel` has the protocol, and each other module one broker."""

from __future__ import annotations

from daybreak.core.errors import BadInput, StoreUnsuitable
from daybreak.feeds.bridge.channels.address import BrokerAddress
from daybreak.feeds.bridge.channels.channel import Channel, Topics

_LIBRARIES = {
    "nats": ("nats", "nats-py"),
    "kafka": ("kafka", "confluent-kafka"),
    "rabbitmq": ("rabbitmq", "aio-pika"),
    "redis": ("redis", "hiredis"),
}


def make_channel(address: BrokerAddress, topics: Topics) -> Channel:
    """A channel that is not open yet. Raises BadInput if the broker's library is not installed."""
    try:
        if address.kind == "nats":
            from daybreak.feeds.bridge.channels.nats import NatsChannel  # noqa: PLC0415 - an extra each

            return NatsChannel(address, topics)
        if address.kind == "kafka":
            from daybreak.feeds.bridge.channels.kafka import KafkaChannel  # noqa: PLC0415

            return KafkaChannel(address, topics)
        if address.kind == "rabbitmq":
            from daybreak.feeds.bridge.channels.rabbitmq import RabbitChannel  # noqa: PLC0415

            return RabbitChannel(address, topics)
        from daybreak.feeds.bridge.channels.redis_streams import RedisChannel  # noqa: PLC0415

        return RedisChannel(address, topics)
    except (ImportError, StoreUnsuitable):
        extra, library = _LIBRARIES[address.kind]
        raise BadInput(f"a bridge to {address} needs {library}: pip install 'daybreak[{extra}]'") from None
