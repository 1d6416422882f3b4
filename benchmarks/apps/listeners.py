"""Clients of the live feed that only count what they get: python -m benchmarks.apps.listeners PORT CLIENTS FILE"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from benchmarks.api_server import HOST, request


class Listener(asyncio.Protocol):
    def __init__(self) -> None:
        self.messages = 0
        self.received = 0
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(request("GET", "/api/v1/events"))

    def data_received(self, data: bytes) -> None:
        self.messages += data.count(b"\n\n")
        self.received += len(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False


async def main(port: int, clients: int, file: Path) -> None:
    """Once a second the file gets the number of messages that each has received, and whether all are connected."""
    loop = asyncio.get_running_loop()
    listeners = [(await loop.create_connection(Listener, HOST, port))[1] for _ in range(clients)]
    while True:
        told = {
            "messages": [listener.messages for listener in listeners],
            "bytes": sum(listener.received for listener in listeners),
            "open": sum(listener.is_open for listener in listeners),
        }
        made = file.with_suffix(".new")
        made.write_text(json.dumps(told), encoding="utf-8")
        made.rename(file)
        await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
