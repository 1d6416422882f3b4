"""A licence server that hangs up on some callers, and how a job asks it: where the demo's retries come from."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Final

ASKED: Final = b"check out buck\n"
GRANTED: Final = b"granted\n"


@contextlib.asynccontextmanager
async def server(drops_every: int) -> AsyncIterator[int]:
    """Serves on a free port of this machine, which it gives, and drops one in so many connections without an answer."""
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\n")
            asked += 1
            if asked % drops_every == 0:
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
    """Returns with a licence; ConnectionError if the server hung up."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(ASKED)
        if line.recv(64) != GRANTED:
            raise ConnectionError("the licence server hung up")
