"""A server under load: many clients of the live feed, many requests, and workers that keep up beside it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.api_server import Connection, new_token, request, served
from benchmarks.processes import Process, cpu_seconds
from benchmarks.starts import Starts, wait_until
from benchmarks.stats import quantile
from benchmarks.watch import Timed
from benchmarks.workers import Ours, ours

WARM_UP = 10  # seconds
WITHIN = 60
SUBMITS = 3  # of so many requests one submits a job
READS = (
    "/api/v1/jobs/{job}", "/api/v1/jobs/{job}", "/api/v1/jobs?limit=20", "/api/v1/jobs/{job}/events", "/api/v1/queues",
    "/api/v1/jobs?state=queued&limit=20",
)  # fmt: skip
CONNECTIONS = 40


@dataclass
class Load:
    """What was measured. `is_on` is False while everything warms up."""

    waits: list[float] = field(default_factory=list)  # milliseconds from when a request was due to its answer
    failed: dict[int, int] = field(default_factory=dict)
    submitted: int = 0
    waiting: list[int] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # MiB
    is_on: bool = False


def load(store: str, place: Path, seconds: int, *, clients: int, requests: int, rate: int) -> Timed:
    """Milliseconds, p99, of `requests` a second for so many seconds, a third of which submit a job. This process
    submits more jobs itself, so that workers run `rate` a second. Requests are due at their time, whether the one
    before was answered or not."""
    starts, load = Starts(place), Load()
    with ours(store, place) as runner, served(place) as (server, port), runner.work() as worker:
        token = new_token("read", "submit")
        told = place / "listeners.json"
        command = [sys.executable, "-m", "benchmarks.apps.listeners", str(port), str(clients), str(told)]
        with Process(command, place, "listeners") as listeners:
            wait_until(lambda: listeners.check() and told.exists(), "the listeners", within=WITHIN)
            runner.submit(0)
            wait_until(lambda: worker.check() and len(starts) > 0, "the worker's first job", within=WITHIN)
            driver = _Driver(runner, port, token, load, server.pid)
            runner.app.portal.run(driver.run(WARM_UP, requests, rate))
            load.is_on = True
            pids = {"server": server.pid, "worker": worker.pid, "listeners": listeners.pid, "driver": os.getpid()}
            if runner.server.pid is not None:
                pids["store"] = runner.server.pid
            before, began, used = json.loads(told.read_text()), len(starts), _cpu_of(pids)
            took = runner.app.portal.run(driver.run(seconds, requests, rate))
            ended, used = len(starts), {name: spent - used[name] for name, spent in _cpu_of(pids).items()}
            time.sleep(2)
            after = json.loads(told.read_text())
            wait_until(runner.is_done, "the end of every job", within=WITHIN)
        facts = runner.facts()
    got = [now - then for now, then in zip(after["messages"], before["messages"], strict=True)]
    waits, quarter = sorted(load.waits), max(1, len(load.memory) // 4)
    parts = {
        "p50": quantile(waits, 0.5), "p95": quantile(waits, 0.95), "worst": waits[-1],
        "requests/s": len(waits) / took, "refused": sum(load.failed.values()),
        "jobs/s": (ended - began) / took, "most waiting": max(load.waiting),
        "listeners": after["open"], "messages/s each": min(got) / (took + 2),
        "MB/s": (after["bytes"] - before["bytes"]) / took / 1e6,
        "server MiB": max(load.memory), "growth MiB": max(load.memory[-quarter:]) - max(load.memory[:quarter]),
        **{f"{name} % of a core": 100 * spent / took for name, spent in used.items()},
    }  # fmt: skip
    return Timed(figure=quantile(waits, 0.99), parts=parts, facts=facts)


class _Driver:
    def __init__(self, runner: Ours, port: int, token: str, load: Load, server: int) -> None:
        self._runner = runner
        self._port = port
        self._token = token
        self._load = load
        self._server = server
        self._jobs: deque[str] = deque(maxlen=500)
        self._free: deque[Connection] = deque()
        self._open = asyncio.Semaphore(CONNECTIONS)

    async def run(self, seconds: int, requests: int, rate: int) -> float:
        """How long it took."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed(seconds, max(rate - requests // SUBMITS, 0)))
            group.create_task(self._watch(seconds))
            for n in range(seconds * requests):
                due = began + n / requests
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(self._ask(n, due))
        return time.monotonic() - began

    async def _ask(self, n: int, due: float) -> None:
        async with self._open:
            connection = self._free.popleft() if self._free else Connection(self._port)
            status, body = await connection.ask(self._request(n))
            self._free.append(connection)
        if n % SUBMITS == 0 and status == 201:
            self._jobs.append(json.loads(body)["id"])
        if self._load.is_on:
            self._load.waits.append((time.monotonic() - due) * 1000)
            if status not in (200, 201):
                self._load.failed[status] = self._load.failed.get(status, 0) + 1

    def _request(self, n: int) -> bytes:
        if n % SUBMITS == 0 or not self._jobs:
            body = {"task": "noop", "args": {"n": n}}
            return request("POST", "/api/v1/jobs", self._token, body)
        path = random.choice(READS).format(job=random.choice(self._jobs))
        return request("GET", path, self._token)

    async def _feed(self, seconds: int, rate: int) -> None:
        """Submit jobs ten times a second."""
        for tick in range(seconds * 10):
            began = time.monotonic()
            count = rate * (tick + 1) // 10 - rate * tick // 10
            if count:
                await self._runner.task.asubmit_many([{"n": n} for n in range(count)])
            await asyncio.sleep(max(0.0, began + 0.1 - time.monotonic()))

    async def _watch(self, seconds: int) -> None:
        """Once a second: the server's memory, and how many jobs wait."""
        for _ in range(seconds):
            await asyncio.sleep(1)
            if self._load.is_on:
                self._load.memory.append(_memory_of(self._server))
                stats = await self._runner.app.queue("default").astats()
                self._load.waiting.append(stats.by_state["queued"])


def _cpu_of(pids: dict[str, int]) -> dict[str, float]:
    """Seconds of each process and its children. The driver's children are the others."""
    spent = {name: cpu_seconds(pid) for name, pid in pids.items()}
    spent["driver"] = time.process_time()
    return spent


def _memory_of(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
