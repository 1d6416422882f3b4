"""Submits over a network that loses every second answer: as many jobs as keys, and one answer for each key.

Two servers share a store. A proxy passes each connection to one of them, and cuts it when an answer comes, every second
time. In the long form the servers are also killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from daybreak.client.client import Client
from daybreak.core.units import moment
from daybreak.server.access.tokens import create_token
from daybreak.stores.sqlite import SqliteStore

pytestmark = pytest.mark.torture

LONG = os.environ.get("DAYBREAK_TORTURE") == "long"
JOBS = 10_000 if LONG else 300
CALLERS = 16
KILL_EVERY = 1500 if LONG else 150  # answers
JOBS_PATH = "/api/v1/jobs"


class Server:
    """`daybreak serve` as a process, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "daybreak.cli", "--url", "jobs.db", "serve", "--port", "0",
            cwd=self._folder, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr is not None
        told = (await self._process.stderr.readline()).decode()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", told)
        assert found is not None, told
        self.port = int(found[1])
        self._reading = asyncio.create_task(self._process.stderr.read())

    async def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        await self._reading


class Proxy:
    """Passes connections on, and cuts every second answer."""

    def __init__(self, servers: list[Server], chance: random.Random) -> None:
        self._servers = servers
        self._chance = chance
        self.passed = self.cut = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._chance.choice(self._servers).port
        up = None
        try:
            up_reader, up = await asyncio.open_connection("127.0.0.1", port)
            sending = asyncio.create_task(_copy(reader, up))
            while data := await up_reader.read(65536):
                if self._chance.random() < 0.5:
                    self.cut += 1
                    break
                self.passed += 1
                writer.write(data)
                await writer.drain()
            sending.cancel()
        except OSError:
            pass
        finally:
            for one in (up, writer):
                if one is not None:
                    one.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def submit(client: httpx.AsyncClient, n: int) -> str:
    """The id of job n, asked for until an answer comes through."""
    while True:
        try:
            answer = await client.post(
                JOBS_PATH, json={"task": "work", "args": {"n": n}}, headers={"idempotency-key": f"job-{n}"}
            )
        except httpx.TransportError:
            await asyncio.sleep(0.001)
            continue
        if answer.status_code == 503:
            continue
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]


async def test_as_many_jobs_as_keys_though_every_second_answer_is_lost(tmp_path):
    chance = random.Random(7)
    async with SqliteStore(tmp_path / "jobs.db") as store:
        client = Client(store)
        _, token = await create_token(store, "t", ["submit"], now=moment(client.wall()))
        servers = [Server(tmp_path), Server(tmp_path)]
        for server in servers:
            await server.start()
        proxy = Proxy(servers, chance)
        try:
            async with (
                proxy.listening() as port,
                httpx.AsyncClient(
                    base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {token}"}, timeout=60
                ) as http,
            ):
                ids = await _submit_all(http, servers, chance)
                again = await asyncio.gather(*(submit(http, n) for n in range(0, JOBS, JOBS // 20)))
        finally:
            for server in servers:
                await server.kill()
        counts = await client.count()
        assert sum(counts.values()) == JOBS
        assert len(set(ids.values())) == JOBS
        assert again == [ids[n] for n in range(0, JOBS, JOBS // 20)]
        assert proxy.cut > JOBS / 2
        print(f"{JOBS} jobs, {proxy.cut} answers lost, {proxy.passed} passed")


async def _submit_all(http: httpx.AsyncClient, servers: list[Server], chance: random.Random) -> dict[int, str]:
    ids: dict[int, str] = {}
    numbers = iter(range(JOBS))

    async def caller() -> None:
        for n in numbers:
            ids[n] = await submit(http, n)

    async def killer() -> None:
        due = KILL_EVERY
        while len(ids) < JOBS:
            await asyncio.sleep(0.05)
            if len(ids) >= due:
                due += KILL_EVERY
                server = chance.choice(servers)
                await server.kill()
                await server.start()

    killing = asyncio.create_task(killer())
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    killing.cancel()
    await asyncio.gather(killing, return_exceptions=True)
    return ids
