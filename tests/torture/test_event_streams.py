"""Clients of the live feed, cut off at random, of a server that is stopped and killed while events flow: every client
sees every event once, and those of a job in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from player_processes import count
from server_stores import place_on
from worker_processes import nobody_left

from daybreak import Daybreak
from daybreak.store.protocol import LATEST

pytestmark = pytest.mark.torture

CLIENTS = count(6, 20)
CUTS = count(40, 500)
RESTARTS = count(2, 10)
PATIENCE = 120  # seconds, for anything
Told = tuple[str, int, str]  # the job, the number of its event, and the kind


class ServerProcess:
    """`daybreak serve`. Each start has another port, because another program may take the old one."""

    def __init__(self, url: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "daybreak.cli", "serve", "--port", "0", "--url", url]
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""
        self.restarts = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=self._folder, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stderr is not None
        while not (found := re.search(r"(http://\S+?)\. ", line := (await self._process.stderr.readline()).decode())):
            assert line, "the server ended before it told its address"
        self.address = found[1]
        self._reading = asyncio.create_task(self._process.stderr.read())

    async def end(self, number: int) -> None:
        assert self._process is not None
        self.address = ""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            await self._process.wait()
            await self._reading


class StreamClient:
    """A client as a browser is one: it connects again with the id of the last whole message."""

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.seen: list[Told] = []
        self.last_id: str | None = None
        self.cuts = 0
        self.is_cut = True  # whether its connections are cut

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=PATIENCE) as http:
            while True:
                if self._server.address:
                    with contextlib.suppress(httpx.TransportError):
                        await self._connection(http)
                await asyncio.sleep(0.01)

    async def _connection(self, http: httpx.AsyncClient) -> None:
        headers = {} if self.last_id is None else {"last-event-id": self.last_id}
        left = self._chance.choice([0, 100, 1000, 5000, 20000, 50000])  # bytes, so also in the middle of a message
        url, rest = f"{self._server.address}/api/v1/events", b""
        async with http.stream("GET", url, headers=headers) as response:
            if response.status_code != 200:  # it is about to stop
                return
            async for chunk in response.aiter_raw():
                taken = chunk[:left] if self.is_cut and self.last_id is not None else chunk
                left -= len(chunk)
                *whole, rest = (rest + taken).split(b"\n\n")
                for message in whole:
                    self._read(message.decode())
                if left <= 0 and self.is_cut and self.last_id is not None:
                    self.cuts += 1
                    return

    def _read(self, message: str) -> None:
        fields = dict(line.partition(": ")[::2] for line in message.splitlines())
        self.last_id = fields.get("id", self.last_id)
        if "event" not in fields:
            event = json.loads(fields["data"])
            self.seen.append((event["job"], event["n"], event["kind"]))


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    with place_on(request.param) as url:
        yield url


async def test_every_client_sees_every_event_once(url: str, tmp_path: Path, tell: Callable[[str], None]) -> None:
    seed = int(os.environ.get("DAYBREAK_SEED", time.time_ns() % 1_000_000))
    chance, began = random.Random(seed), time.monotonic()
    with nobody_left():
        async with Daybreak(url, by="ann") as app:
            start = (await (await app.client()).store.events(LATEST)).cursor
            server = ServerProcess(url, tmp_path)
            await server.start()
            clients = [StreamClient(server, random.Random(chance.random())) for _ in range(CLIENTS)]
            async with running(clients):
                await until(lambda: all(client.last_id is not None for client in clients), "all are connected")
                await write_and_break(app, server, clients, chance)
                for client in clients:
                    client.is_cut = False
                events = await events_after(app, start)
                await until(lambda: all(len(client.seen) >= len(events) for client in clients), "all saw everything")
            await server.end(signal.SIGTERM)
    for client in clients:
        assert Counter(client.seen) == Counter(events), f"seed {seed}"
        assert numbers_of(client.seen) == numbers_of(events), f"seed {seed}: in order per job"
    cuts = sum(client.cuts for client in clients)
    tell(
        f"{CLIENTS} clients, {cuts} disconnects, {server.restarts} restarts, {len(events)} events, each seen once by "
        f"every client, in {time.monotonic() - began:.0f} s (seed {seed})"
    )


async def write_and_break(
    app: Daybreak, server: ServerProcess, clients: list[StreamClient], chance: random.Random
) -> None:
    """Submit and cancel jobs until there were enough disconnects and restarts. The server is told to stop, or killed,
    in turn; jobs are submitted also while it is away."""

    @app.task
    def work(n: int) -> int:
        return n

    deadline = time.monotonic() + count(PATIENCE, 10 * PATIENCE)
    while (cuts := sum(client.cuts for client in clients)) < CUTS or server.restarts < RESTARTS:
        assert time.monotonic() < deadline, f"only {cuts} disconnects and {server.restarts} restarts"
        await change_some(work, chance)
        if server.restarts < RESTARTS and cuts >= server.restarts * CUTS / RESTARTS:
            ending = asyncio.create_task(server.end(chance.choice([signal.SIGTERM, signal.SIGKILL])))
            while not ending.done():
                await change_some(work, chance)
            await ending
            await server.start()
            server.restarts += 1


async def change_some(work: Any, chance: random.Random) -> None:
    jobs = await work.asubmit_many([{"n": n} for n in range(chance.randrange(1, 30))])
    for job in jobs[::3]:
        await job.acancel()
    await asyncio.sleep(chance.choice([0, 0.005, 0.02]))


@contextlib.asynccontextmanager
async def running(clients: list[StreamClient]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(client.run()) for client in clients]
    try:
        yield
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        await asyncio.sleep(0.02)


async def events_after(app: Daybreak, cursor: str) -> list[Told]:
    store, found = (await app.client()).store, []
    while (feed := await store.events(cursor, 1000)).events:
        found += [(event.job, event.n, event.kind) for event in feed.events]
        cursor = feed.cursor
    return found


def numbers_of(events: list[Told]) -> dict[str, list[int]]:
    """The numbers of the events of each job, as they came."""
    numbers = defaultdict(list)
    for job, n, _ in events:
        numbers[job].append(n)
    return numbers
