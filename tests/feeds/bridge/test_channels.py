"""What every channel promises, on every broker."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from brokers import Broker, address_of, free_port
from msgspec.structs import replace

from daybreak.feeds.bridge.channels import make_channel
from daybreak.feeds.bridge.channels.address import parse_broker
from daybreak.feeds.bridge.channels.channel import Channel, ChannelError, Message, Outgoing, Topics
from daybreak.feeds.bridge.channels.offsets import Offsets

WAIT = timedelta(seconds=0.3)
LIMIT = 60


def outgoing(*numbers: int, key: str = "one") -> list[Outgoing]:
    return [
        Outgoing(body=b'{"n": %d}' % number, id=f"m{number}", key=key, headers={"kind": "test"}) for number in numbers
    ]


async def receive(channel: Channel, count: int) -> list[Message]:
    """Exactly so many messages: what comes beyond is seen by whoever asks next."""
    found: list[Message] = []
    async with asyncio.timeout(LIMIT):
        while len(found) < count:
            found += await channel.receive(count - len(found), WAIT)
    return found


async def nothing_comes(channel: Channel, times: int = 3) -> None:
    for _ in range(times):
        assert await channel.receive(10, WAIT) == []


def ids(messages: list[Message]) -> list[str | None]:
    return [message.id for message in messages]


async def test_what_is_published_is_received_in_order(broker: Broker):
    topics = broker.topics()
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, outgoing(*range(20)))
        found = await receive(channel, 20)
    assert ids(found) == [f"m{number}" for number in range(20)]
    assert [message.body for message in found] == [b'{"n": %d}' % number for number in range(20)]
    assert all(message.headers["kind"] == "test" for message in found)
    if broker.kind != "rabbitmq":
        assert len({message.position for message in found}) == 20


async def test_bytes_of_any_kind_come_through(broker: Broker):
    topics, body = broker.topics(), bytes(range(256))
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, [Outgoing(body=body, id="x")])
        [message] = await receive(channel, 1)
    assert message.body == body


async def test_nothing_is_received_from_an_empty_topic(broker: Broker):
    async with broker.open(broker.topics()) as channel:
        await nothing_comes(channel, 1)


async def test_an_acknowledged_message_is_not_delivered_again(broker: Broker):
    topics = broker.topics()
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, outgoing(1, 2, 3))
        await channel.acknowledge(await receive(channel, 3))
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, outgoing(4))
        assert ids(await receive(channel, 1)) == ["m4"]


async def test_what_was_not_acknowledged_is_delivered_again_with_the_same_identity(broker: Broker):
    topics = broker.topics()
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, outgoing(1, 2, 3))
        first = await receive(channel, 3)
        await channel.acknowledge([first[0]])
    async with broker.open(topics) as channel:
        found: dict[str | None, Message] = {}
        async with asyncio.timeout(LIMIT):
            while len(found) < 2:  # on a slow machine one of them may come a third time
                found |= {message.id: message for message in await channel.receive(10, WAIT)}
    again = [found[message.id] for message in first[1:]]
    assert [(each.id, each.position, each.body) for each in again] == [
        (each.id, each.position, each.body) for each in first[1:]
    ]


async def test_an_early_message_is_not_lost_because_later_ones_are_acknowledged(broker: Broker):
    topics = broker.topics()
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, outgoing(*range(5)))
        found = await receive(channel, 5)
        await channel.acknowledge(found[1:])
    async with broker.open(topics) as channel:
        assert (await receive(channel, 1))[0].id == "m0"


async def test_a_group_starts_with_the_oldest_message(broker: Broker):
    topics = broker.topics()
    async with broker.open(Topics(group="")) as channel:
        await channel.publish(topics.incoming, outgoing(1, 2))
    async with broker.open(topics) as channel:
        assert ids(await receive(channel, 2)) == ["m1", "m2"]


async def test_members_of_a_group_share_the_messages(broker: Broker):
    topics = broker.topics()
    got: list[str | None] = []
    async with broker.open(topics, is_quick=False) as one, broker.open(topics, is_quick=False) as two:

        async def work(channel: Channel) -> None:
            while len(set(got)) < 40:
                found = await channel.receive(5, WAIT)
                await channel.acknowledge(found)
                got.extend(ids(found))

        working = [asyncio.create_task(work(channel)) for channel in (one, two)]
        for number in range(40):
            await one.publish(topics.incoming, outgoing(number, key=str(number)))
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*working)
    assert set(got) == {f"m{number}" for number in range(40)}
    if broker.kind != "kafka":  # where members join and leave, messages may come twice
        assert len(got) == 40


async def test_a_dead_letter_keeps_its_body_and_tells_the_reason(broker: Broker):
    topics, reader = broker.topics(), Topics(group="readers")
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, [Outgoing(body=b"\x00\xff no json", id="bad", headers={"from": "test"})])
        [message] = await receive(channel, 1)
        await channel.dead_letter(topics.dead, message, "Ölstand:\nnot JSON", topics.incoming)
        await nothing_comes(channel)
    async with broker.open(Topics(group=reader.group, incoming=topics.dead)) as channel:
        [letter] = await receive(channel, 1)
    assert letter.body == b"\x00\xff no json"
    assert letter.headers["daybreak-reason"].startswith("\\xd6lstand:")
    assert letter.headers["daybreak-topic"] == topics.incoming
    assert letter.headers["daybreak-id"] == "bad"
    assert letter.headers["from"] == "test"


async def test_a_dead_letter_that_is_too_large_with_its_reason_comes_without_its_body(broker: Broker):
    """Nothing behind it is blocked. RabbitMQ and Redis take it whole."""
    topics = broker.topics()
    body = b"x" * (1024 * 1024)  # the most that NATS takes, and more than Kafka does
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, outgoing(1))
        [message] = await receive(channel, 1)
        await channel.dead_letter(topics.dead, replace(message, body=body), "because", topics.incoming)
        await nothing_comes(channel)
    async with broker.open(Topics(group="readers", incoming=topics.dead)) as channel:
        [letter] = await receive(channel, 1)
    is_whole = broker.kind in ("rabbitmq", "redis")
    assert letter.body == (body if is_whole else b"")
    assert letter.headers["daybreak-reason"] == "because"
    assert letter.headers.get("daybreak-left-out") == (None if is_whole else "body of 1,048,576 bytes")


async def test_a_message_with_the_longest_id_can_be_a_dead_letter(broker: Broker):
    topics, longest = broker.topics(), "i" * 255  # RabbitMQ takes no longer one
    async with broker.open(topics) as channel:
        await channel.publish(topics.incoming, [Outgoing(body=b"bad", id=longest)])
        [message] = await receive(channel, 1)
        await channel.dead_letter(topics.dead, message, "because", topics.incoming)
        await nothing_comes(channel)
    async with broker.open(Topics(group="readers", incoming=topics.dead)) as channel:
        [letter] = await receive(channel, 1)
    assert letter.headers["daybreak-id"] == longest


async def test_messages_that_are_held_do_not_go_to_another_member(broker: Broker):
    """For twice the time after which a process that says nothing loses them."""
    if broker.kind == "kafka":
        pytest.skip("partitions are not divided by time")
    topics = broker.topics()
    async with broker.open(topics) as holder:
        await holder.publish(topics.incoming, outgoing(1, 2))
        held = await receive(holder, 2)
        async with broker.open(topics) as other:
            last = time.monotonic()
            for _ in range(14):
                await holder.hold(held)
                came = await other.receive(10, WAIT)
                if time.monotonic() - last > 0.9:
                    return  # this machine stood still for so long that the server may rightly give them away
                last = time.monotonic()
                assert came == []
        await holder.acknowledge(held)


async def test_a_broker_that_is_not_there_is_a_channel_error(broker: Broker):
    host, port = address_of(broker.url)
    url = broker.plain_url.replace(f"{host}:{port}", f"127.0.0.1:{free_port()}")
    channel = make_channel(parse_broker(url), broker.topics())
    with pytest.raises(ChannelError):
        await channel.open()
    await channel.close()


# -- Kafka's offsets ---------------------------------------------------------------------------------------------------


def test_a_commit_waits_for_the_slowest_message():
    offsets = Offsets()
    for offset in range(10, 15):
        offsets.received(0, offset)
    assert offsets.done([(0, 11), (0, 12)]) == {0: 10}
    assert offsets.done([(0, 10)]) == {0: 13}
    assert offsets.done([(0, 14), (0, 13)]) == {0: 15}


def test_messages_of_a_partition_that_went_to_another_process_are_not_committed():
    offsets = Offsets()
    offsets.received(0, 10)
    offsets.received(1, 20)
    offsets.forget(0)
    assert offsets.done([(0, 10), (1, 20)]) == {1: 21}
