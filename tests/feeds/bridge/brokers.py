"""The brokers that tests use: those at their usual ports, a Kafka cluster of librdkafka, and private ones that may be
killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_cluster import KafkaCluster, kafka_cluster

from daybreak.feeds.bridge.channels import make_channel
from daybreak.feeds.bridge.channels.address import parse_broker
from daybreak.feeds.bridge.channels.channel import Topics

NATS = os.environ.get("DAYBREAK_TEST_NATS", "nats://127.0.0.1:4222")
RABBITMQ = os.environ.get("DAYBREAK_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/")
REDIS = os.environ.get("DAYBREAK_TEST_REDIS", "redis://127.0.0.1:6379")
KINDS = ("nats", "kafka", "rabbitmq", "redis")
# Messages of a process that vanished come back soon.
QUICK = {"nats": "?ack_wait=2s", "redis": "?claim_after=1s", "kafka": "?group.protocol=consumer", "rabbitmq": ""}
RABBITMQ_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"


def missing(what: str) -> None:
    """At home a missing server skips, and says so; in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: the tests of bridges need one")
    pytest.skip(f"{what}: its tests of bridges are SKIPPED")


class Broker:
    """One broker, and topics in it that are deleted afterwards."""

    def __init__(self, kind: str, url: str, cluster: KafkaCluster | None = None) -> None:
        self.kind = kind
        self.plain_url = url
        self.url = url + QUICK[kind]
        self.cluster = cluster
        self._topics: list[str] = []

    def topics(self, **names: str) -> Topics:
        """New topics: in.X, out.X and in.X.dead."""
        mark = secrets.token_hex(5)
        incoming, outgoing = f"in.{mark}", f"out.{mark}"
        self._topics += [incoming, outgoing, f"{incoming}.dead"]
        if self.cluster is not None:
            for topic in self._topics[-3:]:
                self.cluster.tell(f"topic {topic} 2")
        topics = {
            "group": f"daybreak-{incoming}",
            "incoming": incoming,
            "outgoing": outgoing,
            "dead": f"{incoming}.dead",
        }
        return Topics(**{**topics, **names})

    @contextlib.asynccontextmanager
    async def open(self, topics: Topics, *, is_quick: bool = True):
        url = self.url if is_quick or self.kind == "kafka" else self.plain_url
        channel = make_channel(parse_broker(url), topics)
        await channel.open()
        try:
            yield channel
        finally:
            await channel.close()

    async def delete_topics(self) -> None:
        if self.kind == "redis":
            async with self.open(Topics(group="")) as channel:
                for topic in self._topics:
                    await channel._call("DEL", topic)
        elif self.kind == "nats":
            async with self.open(Topics(group="")) as channel:
                for topic in self._topics:
                    with contextlib.suppress(Exception):
                        await channel._stream.delete_stream(topic.replace(".", "_"))
        elif self.kind == "rabbitmq":
            async with self.open(Topics(group="")) as channel:
                for topic in self._topics:
                    await channel._channel.queue_delete(topic)


def address_of(url: str) -> tuple[str, int]:
    host, _, port = parse_broker(url).hosts.rpartition(":")
    return host, int(port)


def is_listening(url: str) -> bool:
    try:
        socket.create_connection(address_of(url), 3).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def broker_of(kind: str) -> Iterator[Broker]:
    """A broker that other tests may use at the same time."""
    libraries = {"nats": "nats", "kafka": "confluent_kafka", "rabbitmq": "aio_pika", "redis": "hiredis"}
    pytest.importorskip(libraries[kind])
    if kind == "kafka":
        with kafka_cluster() as cluster:
            yield Broker(kind, cluster.url, cluster)
        return
    url = {"nats": NATS, "rabbitmq": RABBITMQ, "redis": REDIS}[kind]
    if not is_listening(url):
        missing(f"no {kind} server at {parse_broker(url)}")
    broker = Broker(kind, url)
    try:
        yield broker
    finally:
        asyncio.run(broker.delete_topics())


# -- private servers ---------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PrivateBroker:
    """A server of a test's own, in its own group of processes."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._port = free_port()
        scheme, login = ("amqp", "guest:guest@") if kind == "rabbitmq" else (kind, "")
        self.url = f"{scheme}://{login}127.0.0.1:{self._port}" + ("/" if kind == "rabbitmq" else "")
        self._dist_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def _command(self) -> list[str]:
        port, folder = str(self._port), str(self._folder)
        if self.kind == "nats":
            return [str(program_of("nats")), "-a", "127.0.0.1", "-p", port, "-js", "-sd", folder]
        if self.kind == "redis":
            return [
                "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "",
                "--appendonly", "yes", "--appendfsync", "always",
            ]  # fmt: skip
        return [RABBITMQ_PROGRAM]

    def _around(self) -> dict[str, str]:
        folder, port = self._folder, self._port
        return {
            **os.environ, "HOME": str(folder), "RABBITMQ_NODENAME": f"daybreak{port}@localhost",
            "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self._dist_port), "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"), "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"), "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        }  # fmt: skip

    def start(self) -> None:
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, env=self._around(), start_new_session=True, cwd=self._folder
            )
        end = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < end, "the private server does not answer"
            assert self._process.poll() is None, (self._folder / "server.log").read_text()[-2000:]
            time.sleep(0.05)

    def _answers(self) -> bool:
        async def try_open() -> bool:
            channel = make_channel(parse_broker(self.url), Topics(group=""))
            try:
                await channel.open()
            except Exception:  # noqa: BLE001 - it is not there yet
                return False
            finally:
                await channel.close()
            return True

        return is_listening(self.url) and asyncio.run(try_open())

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def program_of(kind: str) -> str | None:
    """The server's program. Debian puts that of NATS where only root looks."""
    if kind == "rabbitmq":
        return shutil.which(RABBITMQ_PROGRAM)
    return shutil.which(f"{kind}-server", path=os.environ.get("PATH", "") + ":/usr/sbin")


@contextlib.contextmanager
def private_broker(kind: str, folder: Path) -> Iterator[PrivateBroker]:
    if program_of(kind) is None:
        missing(f"no {kind} server is installed on this machine")
    broker = PrivateBroker(kind, folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
