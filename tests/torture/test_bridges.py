"""Messages with duplicates and poison come in while the bridge is killed and the broker is restarted: each message is
exactly one job, each bad one a dead letter, and each event is sent at least once, in order per job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from brokers import KINDS, QUICK, private_broker
from cuttable_wire import Wire
from kafka_cluster import kafka_cluster
from player_processes import LONG

from daybreak import Client
from daybreak.feeds.bridge.channels import make_channel
from daybreak.feeds.bridge.channels.address import parse_broker
from daybreak.feeds.bridge.channels.channel import ChannelError, Message, Outgoing, Topics
from daybreak.stores import store_for

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(os.name == "nt", reason="the servers run on POSIX systems"),
]

TARGET = Path(__file__).with_name("bridge_load.py")
MESSAGES = 10_000 if LONG else 500
KILLS = 20 if LONG else 4
LIMIT = 1800 if LONG else 170
SEED = 11
WAIT = timedelta(seconds=0.3)
TOPICS = ("in.load", "in.load.dead", "out.load")
PARTITIONS = 16  # each of the Kafka cluster keeps 5 MiB


class Scene:
    """The bridge's process, the broker, and a client of the store."""

    def __init__(self, path: Path, url: str) -> None:
        self.url = url
        self.path = path
        self.store_url = f"sqlite:///{path}/jobs.db"
        self._around = {**os.environ, "DAYBREAK_URL": self.store_url, "BRIDGE_BROKER": url}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.path / "bridge.log").open("ab") as log:
            self._process = subprocess.Popen([sys.executable, str(TARGET)], stdout=log, stderr=log, env=self._around)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.asynccontextmanager
    async def channel(self, incoming: str = ""):
        channel = make_channel(parse_broker(self.url), Topics(group=f"test-{incoming}", incoming=incoming))
        try:
            await channel.open()
            yield channel
        finally:
            await channel.close()

    async def send(self, messages: list[Outgoing]) -> None:
        """Send, again and again if need be: that too makes duplicates."""
        while True:
            with contextlib.suppress(ChannelError):
                async with self.channel() as channel:
                    await channel.publish("in.load", messages)
                return
            await asyncio.sleep(0.1)

    async def read(self, topic: str, is_enough) -> list[Message]:
        """Everything in a topic, until it is enough."""
        found: list[Message] = []
        async with asyncio.timeout(LIMIT), self.channel(topic) as channel:
            while not is_enough(found):
                got = await channel.receive(500, WAIT)
                await channel.acknowledge(got)
                found += got
        return found


def messages_of(chance: random.Random) -> list[Outgoing]:
    """Every message once, some of them several times, and poison among them."""
    made = []
    for number in range(MESSAGES):
        body = {"version": 1, "kind": "submit", "id": f"m{number}", "args": {"number": number}}
        message = Outgoing(body=json.dumps(body).encode(), id=f"m{number}", key=str(number))
        made += [message] * chance.choice((1, 1, 1, 2, 3))
        if number % 50 == 0:
            made.append(Outgoing(body=b"poison %d" % number, id=f"p{number}"))
    return made


async def until(condition, what: str) -> None:
    end = time.monotonic() + LIMIT
    while not await condition():
        assert time.monotonic() < end, f"never: {what}"
        await asyncio.sleep(0.05)


@contextlib.contextmanager
def broker_and_restart(kind: str, folder: Path):
    """The URL of a broker, and what ends it and starts it again. The Kafka cluster is in memory, so a proxy cuts every
    connection to it, and lets nobody through until it is back."""
    if kind == "kafka":
        pytest.importorskip("confluent_kafka")
        with kafka_cluster() as cluster, Wire(cluster.url) as wire:
            for topic in TOPICS:
                cluster.tell(f"topic {topic} {PARTITIONS}")
            cluster.tell(f"advertise {wire.port}")
            cluster.tell("session 3000")
            yield wire.url + QUICK[kind], wire.down.set, wire.down.clear
        return
    folder.mkdir()
    with private_broker(kind, folder) as broker:
        yield broker.url + QUICK[kind], broker.kill, broker.start


@pytest.mark.parametrize("kind", KINDS)
def test_each_message_is_one_job_and_each_event_is_sent_in_order(kind, tmp_path, tell):
    began = time.monotonic()
    with broker_and_restart(kind, tmp_path / "broker") as (url, stop, start_again):
        scene = Scene(tmp_path, url)
        scene.start()
        try:
            figures = asyncio.run(story(scene, stop, start_again))
        finally:
            scene.kill()
    tell(f"{MESSAGES} messages, {KILLS} kills, broker gone twice, {time.monotonic() - began:.0f} s, {figures}")


async def story(scene: Scene, stop, start_again) -> str:
    store = store_for(scene.store_url)
    await store.open()
    client = Client(store)

    async def jobs() -> int:
        return sum((await client.count()).values())

    try:
        chance = random.Random(SEED)
        messages = messages_of(chance)
        part = len(messages) // KILLS + 1
        for number in range(KILLS):
            await scene.send(messages[number * part : (number + 1) * part])
            await until(
                lambda number=number: at_least(jobs, int(MESSAGES * (number + 0.2) / KILLS)), "jobs between two kills"
            )
            if number == 0:
                await asyncio.to_thread(stop)
                await client.amend_all("cancel")  # events for which there is no broker
                await until(lambda: notices(scene), "the bridge notices that its broker is gone")
                await asyncio.to_thread(start_again)
            scene.kill()
            for action in ("suspend", "resume", "cancel"):  # more events, some of them while no bridge runs
                await client.amend_all(action)
            if number == KILLS // 2:
                await asyncio.to_thread(stop)
                scene.start()
                await asyncio.to_thread(start_again)
            else:
                scene.start()
        await until(lambda: at_least(jobs, MESSAGES), "all jobs")
        await client.amend_all("cancel")
        dead = await scene.read("in.load.dead", lambda found: len({each.body for each in found}) >= MESSAGES // 50)
        return await check(scene, client, dead)
    finally:
        await store.close()


async def at_least(count, number: int) -> bool:
    return await count() >= number


async def notices(scene: Scene) -> bool:
    return b"could not be published" in (scene.path / "bridge.log").read_bytes()


async def check(scene: Scene, client: Client, dead: list[Message]) -> str:
    jobs = [job async for job in client.find_all()]
    assert sorted(json.loads(job.spec.args)["number"] for job in jobs) == list(range(MESSAGES))
    assert {letter.body for letter in dead} == {b"poison %d" % number for number in range(0, MESSAGES, 50)}
    wanted = {f"{job.id}.{event.n}" for job in jobs for event in await client.history(job.id)}
    events = await scene.read("out.load", lambda found: wanted <= {each.id for each in found})
    first: dict[str, list[int]] = defaultdict(list)
    # A topic of Kafka has parts, and a reader sees their messages interleaved; those of one job are in one part.
    for event in events:
        data = json.loads(event.body)["data"]
        if data["n"] not in first[data["job"]]:
            first[data["job"]].append(data["n"])
    assert [numbers for numbers in first.values() if numbers != sorted(numbers)] == []
    return f"{len(events)} messages for {len(wanted)} events, {len(dead)} dead letters"
