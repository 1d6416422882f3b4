"""Many clients in one process: python reconnect_client.py URL CLIENTS. Each submits until the process is killed.

Each writes a line when its first submit was accepted, and another one for the first accepted after an outage."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

from server_checks import opened
from worker_processes import write_line

from daybreak import Client
from daybreak.core.errors import StoreUnavailable

LOST = 8.0  # seconds without an accepted submit: the server was away


async def main(url: str, clients: int) -> None:
    await asyncio.gather(*(submit_on(url) for _ in range(clients)))


async def submit_on(url: str) -> None:
    async with opened(url) as store:
        client = Client(store, by="reconnect")
        await client.submit("nothing", {})
        write_line(word="connected")
        accepted_at = time.monotonic()
        while True:
            with contextlib.suppress(StoreUnavailable):
                await client.submit("nothing", {})
                if time.monotonic() - accepted_at > LOST:
                    write_line(word="back")
                accepted_at = time.monotonic()
            await asyncio.sleep(0.5 if time.monotonic() - accepted_at < LOST else 0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
