"""A TCP proxy in front of the server that can cut or hold connections, and counts round trips."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """`cut_replies` closes the connection where the server's next answer should come through; `hold` keeps what
    clients send until it is let go."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut_replies = threading.Event()
        self.flowing = threading.Event()
        self.flowing.set()
        self.cut = 0
        self.carried = 0  # bytes of answers
        self.round_trips: list[int] = []  # by connection: one for TCP, and one for each question that was answered
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.url = ""

    @classmethod
    def to(cls, url: str) -> Self:
        parts = urlsplit(url)
        proxy = cls(parts.hostname or "127.0.0.1", parts.port or 5432)
        user = parts.netloc.rpartition("@")[0]
        proxy.url = f"postgresql://{user}@127.0.0.1:{proxy.port}{parts.path}?{parts.query}"
        return proxy

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.flowing.set()
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        self._listener.settimeout(0.05)
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except (TimeoutError, OSError):
                continue
            self.round_trips.append(1)
            number = len(self.round_trips) - 1
            thread = threading.Thread(target=self._carry, args=(client, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket, number: int) -> None:
        is_asked = False
        with contextlib.suppress(OSError), client, socket.create_connection(self._to) as server:
            while not self._ended.is_set():
                for source in select.select([client, server], [], [], 0.05)[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if source is client:
                        is_asked = True
                        self.flowing.wait()
                        server.sendall(data)
                    elif self.cut_replies.is_set():
                        self.cut += 1
                        return
                    else:
                        self.round_trips[number] += is_asked
                        is_asked = False
                        self.carried += len(data)
                        client.sendall(data)
