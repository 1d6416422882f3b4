"""A ledger with its dispatcher on one event loop, and remote workers: real ones, and ones that a test plays by hand."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqs_tasks import app as tasks_app

from daybreak.core.model import Ending, Job, Lease
from daybreak.files.folder import FolderBlobs
from daybreak.sqs import setup
from daybreak.sqs.address import Address, address_of
from daybreak.sqs.dispatcher import Dispatcher
from daybreak.sqs.messages import SetAside
from daybreak.sqs.queues import SqsQueues, open_queues
from daybreak.sqs.remote_source import RemoteSource
from daybreak.store.protocol import Beat
from daybreak.system.ports import RealWorld
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.lease_source import ClaimRequest
from daybreak.worker.supervisor.worker import Worker

PATIENCE = 180.0  # seconds; waits end as soon as the condition holds
LEASE = 120.0  # seconds: longer than any pause of a loaded machine, where a test does not need a lease to lapse


async def until(condition: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Wait until the condition holds; its value."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        await asyncio.sleep(0.02)


def plan_with(blobs: Any = None, **settings: Any) -> ChildPlan:
    given = {"isolation": "thread", "processes": 1, "lease_for": timedelta(seconds=LEASE), **settings}
    return ChildPlan(program=tasks_app.program, settings=WorkerSettings(**given), blobs=blobs)


class NoWorker:
    """What a source sees of a worker that a test plays."""

    running = done = failed = 0
    exports_metrics = is_stopping = False
    spans = None

    def __init__(self) -> None:
        self.stops = 0

    def leases(self) -> list[Lease]:
        return []

    def children(self) -> list[Any]:
        return []

    def stop(self) -> None:
        self.stops += 1


class Player:
    """A remote worker that a test plays: it takes, beats and reports when the test says so. To abandon it is to kill
    it: nothing that it holds is sent."""

    def __init__(self, source: RemoteSource) -> None:
        self.source = source
        self.worker = NoWorker()
        source.open(self.worker)

    async def take(self, most: int = 1) -> list[Lease]:
        known = tasks_app.program.known()
        return (await self.source.exchange([], ClaimRequest(known, most))).leases

    async def take_one(self) -> Lease:
        """The next lease, waited for."""
        leases = await until(self.take, "a task message came")
        return leases[0]

    async def end(self, lease: Lease, outcome: Ending) -> None:
        await self.source.exchange([(lease, outcome)], None)

    async def beat(self, lease: Lease, **what: Any) -> Any:
        beat = Beat(seq=lease.seq, fence=lease.fence, job=lease.job, **what)
        return (await self.source.extend([beat]))[0]


class Stage:
    """A ledger, its dispatchers and remote workers."""

    def __init__(self, address: Address, queues: SqsQueues, folder: Path, stack: contextlib.AsyncExitStack) -> None:
        self.address = address
        self.queues = queues
        self.folder = folder
        self.blobs = FolderBlobs(folder / "jobs.db-files")
        self._stack = stack
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def file(self) -> Path:
        """The file to which tasks write."""
        return self.folder / "lines"

    def lines(self, word: str = "") -> list[str]:
        if not self.file.exists():
            return []
        return [line for line in self.file.read_text().splitlines() if line.startswith(word)]

    async def store(self) -> Any:
        return (await tasks_app.client()).store

    async def job(self, handle: Any) -> Job:
        found = (await (await self.store()).get([handle.id]))[0]
        assert found is not None
        return found

    async def ended(self, handle: Any) -> Job:
        """The job, once it has ended."""

        async def is_final() -> Job | None:
            job = await self.job(handle)
            return job if job.is_final else None

        return await until(is_final, f"{handle} has ended")

    async def asides(self, n: int = 1) -> list[SetAside]:
        """The messages that were set aside, once there are so many."""

        async def enough() -> list[SetAside] | None:
            found = await setup.asides(self.queues)
            return found if len(found) >= n else None

        return await until(enough, f"{n} messages were set aside")

    async def client(self, client: Any = None) -> SqsQueues:
        """A connection of its own; `client` wraps that of aiobotocore."""
        queues = await self._stack.enter_async_context(open_queues(self.address))
        if client is not None:
            queues._client = client(queues._client)
        return queues

    async def dispatcher(self, *, wrap: Any = None, **options: Any) -> tuple[Dispatcher, asyncio.Task[None]]:
        options = {"wait": 1, "blobs": self.blobs, **options}
        settings = WorkerSettings(
            name="dispatch", lease_for=options.pop("lease_for", timedelta(seconds=1)), queues=options.pop("queues", ())
        )
        plan = ChildPlan(program=tasks_app.program, settings=settings)
        dispatcher = Dispatcher(await self.store(), await self.client(wrap), plan, RealWorld(), **options)
        task = asyncio.create_task(dispatcher.run())
        self._tasks.append(task)
        ready = asyncio.create_task(dispatcher.is_ready.wait())
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        return dispatcher, task

    async def player(self, *, lease: float = LEASE, wrap: Any = None, **options: Any) -> Player:
        plan = plan_with(lease_for=timedelta(seconds=lease))
        player = Player(
            RemoteSource(await self.client(wrap), plan, RealWorld(), **{"blobs": self.blobs, "wait": 1, **options})
        )
        await player.source.begin()
        return player

    async def worker(
        self, *, wrap: Any = None, notice: Any = None, **settings: Any
    ) -> tuple[Worker, asyncio.Task[None]]:
        plan = plan_with(blobs=self.blobs, **settings)
        source = RemoteSource(await self.client(wrap), plan, RealWorld(), blobs=self.blobs, wait=1, notice=notice)
        worker = Worker(source, plan, RealWorld())
        task = asyncio.create_task(worker.run())
        self._tasks.append(task)
        return worker, task

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def open_stage(endpoint: str, prefix: str, folder: Path, url: str | None = None) -> AsyncIterator[Stage]:
    address = address_of(f"sqs://eu-west-1/{prefix}?endpoint={endpoint}")
    tasks_app.use(url or f"sqlite:///{folder}/jobs.db")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(tasks_app.aclose)
        queues = await stack.enter_async_context(open_queues(address))
        await setup.create(queues, visibility=2)
        stage = Stage(address, queues, folder, stack)
        try:
            yield stage
        finally:
            await stage.close()
