"""Private servers of a test, which may be killed, shut down, stopped and started again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest
from postgres_proxy import Proxy
from redis_servers import private as private_redis
from worker_processes import family

PORTS = {"postgresql": 5432, "redis": 6379}


class PrivateServer:
    """`server` is a private PostgreSQL or Redis, in which every commit is synced; `goodbye` asks it to end in order."""

    def __init__(self, server: Any, goodbye: int) -> None:
        self.url: str = server.url
        self.kill = server.kill
        self.start = server.start
        self._server = server
        self._goodbye = goodbye

    def shut_down(self) -> None:
        process = self._server._process
        process.send_signal(self._goodbye)
        process.wait(30)

    def freeze(self) -> list[int]:
        """It is there and does not answer, until the processes named are let go on."""
        first = self._server._process.pid
        os.kill(first, signal.SIGSTOP)  # before the others are looked for: now there will be no new ones
        everyone = [first, *family(first)]
        for pid in everyone[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return everyone


@contextlib.contextmanager
def private_server(kind: str, folder: Path) -> Iterator[PrivateServer]:
    if kind == "redis":
        pytest.importorskip("hiredis")
        with private_redis(folder) as server:
            yield PrivateServer(server, signal.SIGTERM)
        return
    pytest.importorskip("psycopg")
    import postgres_private

    flags = postgres_private.FLAGS.replace("fsync=off", "fsync=on")
    assert "fsync=on" in flags
    with mock.patch.object(postgres_private, "FLAGS", flags), postgres_private.private_server() as server:
        yield PrivateServer(server, signal.SIGINT)


@contextlib.contextmanager
def wire_to(url: str) -> Iterator[tuple[Proxy, str]]:
    """A wire that can be cut, and the URL of the store at its far end."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    with Proxy(parts.hostname or "127.0.0.1", parts.port or PORTS[parts.scheme]) as proxy:
        yield proxy, parts._replace(netloc=f"{user}{at}127.0.0.1:{proxy.port}").geturl()
