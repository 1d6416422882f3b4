"""A licence server that drops some connections, and the client that jobs use. It causes the retries of the demo."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Final

REQUEST: Final = b"check out buck\n"
GRANTED: Final = b"granted\n"


@contextlib.asynccontextmanager
async def server(drops_every: int) -> AsyncIterator[int]:
    """Serve on a free local port, which is yielded. Every `drops_every`-th connection is dropped without an answer."""
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\n")
            requests += 1
            if requests % drops_every == 0:
                writer.transport.abort()
                return
            writer.write(GRANTED)
            await writer.drain()
        writer.close()

    serving = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield serving.sockets[0].getsockname()[1]
    finally:
        serving.close()


def check_out(port: int) -> None:
    """Check out a licence. Raises ConnectionError if the server drops the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(REQUEST)
        if connection.recv(64) != GRANTED:
            raise ConnectionError("the licence server hung up")
