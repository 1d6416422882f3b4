"""A wire between a store and its users that is down now and then, or loses answers."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from urllib.parse import urlsplit

from postgres_proxy import Proxy

PORTS = {"postgresql": 5432, "redis": 6379, "kafka": 9092}


class Wire(Proxy):
    """A wire that is down now and then: then connections end, and new ones are refused."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        super().__init__(parts.hostname or "127.0.0.1", parts.port or PORTS[parts.scheme])
        user, at, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()
        self.down = threading.Event()

    def _carry(self, client, number) -> None:
        """As the proxy, but a connection ends as soon as the wire is down."""
        with contextlib.suppress(OSError), client, socket.create_connection(self._to) as server:
            while not self._ended.is_set() and not self.down.is_set():
                for source in select.select([client, server], [], [], 0.01)[0]:
                    data = source.recv(1 << 16)
                    if not data or self.down.is_set():
                        return
                    while not self.flowing.wait(0.01):  # it answers nothing
                        if self._ended.is_set() or self.down.is_set():
                            return
                    if source is server and self.cut_replies.is_set():
                        self.cut += 1
                        return
                    (server if source is client else client).sendall(data)
