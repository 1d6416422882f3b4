"""Redis for tests: the shared server with a private namespace, or a private server that may be killed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from daybreak.stores.redis import RedisStore, scripts
from daybreak.stores.redis.address import parse
from daybreak.stores.redis.blocking_client import BlockingConnection
from daybreak.testing.clock import HandClock

REDIS = os.environ.get("DAYBREAK_TEST_REDIS", "redis://127.0.0.1:6379")


def missing(what: str) -> None:
    """At home a missing server skips, and says so; in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: the tests of the Redis store need one")
    pytest.skip(f"{what}: the tests of the Redis store are SKIPPED")


def need_redis() -> None:
    try:
        BlockingConnection(parse(REDIS), 2).close()
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no server to test with
        missing(f"no Redis server at {REDIS} ({error})")


@contextlib.contextmanager
def connect(url: str = REDIS):
    """A plain connection, to inspect what the store has written."""
    connection = BlockingConnection(parse(url), 5)
    try:
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def fresh(url: str = REDIS):
    """A new namespace, deleted afterwards."""
    namespace = f"test-{secrets.token_hex(6)}"
    try:
        yield namespace
    finally:
        clear(url, namespace)


def clear(url: str, namespace: str) -> None:
    with connect(url) as connection:
        for key in keys_of(connection, namespace):
            connection.call(("UNLINK", key))


def keys_of(connection: BlockingConnection, namespace: str) -> list[bytes]:
    cursor, found = b"0", []
    while True:
        cursor, keys = connection.call(("SCAN", cursor, "MATCH", f"{{{namespace}}}:*", "COUNT", 1000))
        found += keys
        if cursor == b"0":
            return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class FollowsHand:
    """Replaces `Skew`: the server uses a clock moved by hand. Its own clock reads 0."""

    def __init__(self, store: RedisStore, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self._clock = clock
        store._client.skew = self
        for script in vars(scripts).values():
            if isinstance(script, scripts.Script):
                text = script.text.replace(b"call('TIME')", b"{ 0, 0 }")
                monkeypatch.setattr(script, "text", text)
                monkeypatch.setattr(script, "sha", hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())

    @property
    def micros(self) -> int:
        return self._clock.wall()


class Server:
    """A private server, which syncs every commit unless told otherwise."""

    def __init__(self, folder: Path, *settings: str, program: str = "redis-server", password: str = "") -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._own_url = self.url.replace("//", f"//:{password}@") if password else self.url
        self._folder = folder
        self._command = [
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", *settings,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(400):
            with contextlib.suppress(Exception), connect(self._own_url) as connection:
                if connection.call(("PING",)) == b"PONG":
                    return
            time.sleep(0.025)
        raise AssertionError("the private server does not answer")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


@contextlib.contextmanager
def private(folder: Path, *settings: str, program: str = "redis-server", password: str = ""):
    if shutil.which(program) is None:
        missing(f"no {program} on this machine")
    server = Server(folder, *settings, program=program, password=password)
    try:
        server.start()
        yield server
    finally:
        server.stop()


class Proxy:
    """A proxy between a store and its server that can hold requests, or drop a reply and cut the connection."""

    def __init__(self, url: str) -> None:
        self._to = parse(url)
        self._open = asyncio.Event()
        self._open.set()
        self._cuts = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def hold(self) -> None:
        """Hold requests until `let_go`."""
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def swallow(self) -> None:
        """Cut the connection when the next reply comes."""
        self._cuts = True

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader, writer) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._to.host, self._to.port)
        self._writers |= {writer, up_writer}
        for pump in (self._forward(reader, up_writer), self._reply(up_reader, writer)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)

    async def _forward(self, reader, writer) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
        writer.close()

    async def _reply(self, reader, writer) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._cuts:
                    self._cuts = False
                    self.cut()
                    return
                writer.write(data)
        writer.close()
