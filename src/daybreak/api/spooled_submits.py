"""Submits of an app with a spool: directly to the store while it answers, otherwise into the spool.

The rule that keeps the order: while a job waits in the spool, every submit goes there too, also those of other
processes that share the file. So after a store was found away, a submit costs one commit of the local file. Only the
submit that finds it away waits for the store, at most `OPEN_LIMIT` or `SEND_LIMIT`.

A submit whose answer was lost goes into the spool as well, under the same id: if the store did accept it, it answers
the forwarder with "duplicate"."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from daybreak.api.resources import provide
from daybreak.client.client import Client
from daybreak.client.coalescer import Coalescer
from daybreak.core.errors import BadInput, Refused, StoreUnavailable
from daybreak.core.model import JobSpec, ResourceSettings
from daybreak.files import FileStore
from daybreak.policy.admit import admit, digest
from daybreak.policy.resources import Resource
from daybreak.spool import Forwarder, SpooledJob, SpoolFile
from daybreak.store.protocol import Inserted, Store
from daybreak.system import patience
from daybreak.values.file import MARK, Content

if TYPE_CHECKING:
    from daybreak.api.store_sessions import Sessions

OPEN_LIMIT: Final = timedelta(seconds=1)  # for the first submit of a process, which opens the store
REOPEN_LIMIT: Final = timedelta(seconds=2)  # for one try of the forwarder
SEND_LIMIT: Final = timedelta(milliseconds=250)
SEND_LIMIT_PER_JOB: Final = timedelta(milliseconds=1)
CLOSE_LIMIT: Final = timedelta(seconds=2)  # in which jobs are still forwarded when the app is closed
ARRIVAL_CHECK: Final = timedelta(milliseconds=50)
WORKER_CHECK: Final = timedelta(seconds=1)
SAY_AFTER: Final = timedelta(seconds=2)


class SpooledSubmits:
    """The spool of an app, and what decides where a submit goes."""

    def __init__(self, sessions: Sessions, path: Path, url: str, store: Store) -> None:
        if not store.traits.shared:
            raise BadInput(
                "a spool is for a store that can be away: a memory store is in this process, leave spool out"
            )
        self.file = SpoolFile(path, url, sessions.world)
        self._sessions = sessions
        self._features = store.traits.features
        self._forwarder: Forwarder | None = None
        self._forwarding: concurrent.futures.Future[int] | None = None
        self._lock = threading.Lock()
        self._puts: dict[asyncio.AbstractEventLoop, Coalescer[JobSpec, Inserted]] = {}
        sessions.portal.on_fork(self._forget)
        sessions.portal.on_close(self._stop)

    # -- submit --------------------------------------------------------------------------------------------------------

    def is_direct(self, specs: Sequence[JobSpec]) -> bool:
        """Whether these jobs may be sent to the store now: no job waits here, and their files are in the store."""
        files = self._sessions.files
        return self.file.is_drained and all(MARK not in spec.args or files.knows(spec.args) for spec in specs)

    def insert(self, spec: JobSpec, send: Callable[[], str]) -> str:
        """Submit one job for a blocking caller. `send` submits it to the store."""
        if self.is_direct([spec]):
            with contextlib.suppress(StoreUnavailable):
                if self._sessions.is_open or self._sessions.portal.run(self._opened()):
                    with self.sending(1):
                        return send()
        self.file.put([self._admit(spec)])
        self.start()
        return spec.id

    async def ainsert(self, spec: JobSpec) -> str:
        """Submit one job. Jobs that are spooled at the same time share a commit."""
        if await self.file.thread.call(lambda: self.is_direct([spec])):
            with contextlib.suppress(StoreUnavailable):
                client = await self._opened()
                if client is not None:
                    with self.sending(1):
                        return await client.submit(spec)
        loop = asyncio.get_running_loop()
        put = self._puts.get(loop)
        if put is None:
            self._puts = {known: each for known, each in self._puts.items() if not known.is_closed()}
            put = self._puts[loop] = Coalescer(self._put)
        inserted = await put(self._admit(spec))
        self.start()
        return inserted.job

    async def _put(self, specs: list[JobSpec], _within: float) -> list[Inserted]:
        return await self.file.thread.call(lambda: self.file.put(specs))

    async def open_client(self, specs: Sequence[JobSpec]) -> Client | None:
        """The client by which these jobs may be sent now; None if they go into the spool."""
        if not await self.file.thread.call(lambda: self.is_direct(specs)):
            return None
        with contextlib.suppress(StoreUnavailable):
            return await self._opened()
        return None

    async def _opened(self) -> Client | None:
        """The client of the running loop; None if the store does not open within the limit."""
        with patience.within(OPEN_LIMIT.total_seconds()):
            return await self._sessions.client_within(OPEN_LIMIT)

    def sending(self, jobs: int) -> AbstractContextManager[None]:
        """A block that sends so many jobs to the store, with the time limit for that."""
        return patience.within((SEND_LIMIT + SEND_LIMIT_PER_JOB * jobs).total_seconds())

    async def put_many(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """Put these jobs into the spool, all or none."""
        inserted = await self._put([self._admit(spec) for spec in specs], 0)
        self.start()
        return inserted

    def _admit(self, spec: JobSpec) -> JobSpec:
        """Check a job as the client does: what can never be accepted must not enter the spool."""
        admit(spec, self._features)
        return replace(spec, digest=digest(spec)) if spec.key is not None and not spec.digest else spec

    async def declare(self, resources: dict[str, ResourceSettings]) -> None:
        """Keep the settings that the code declares for resources, for the forwarder."""
        await self.file.thread.call(lambda: self.file.declare(resources))

    def keep(self, contents: Sequence[Content]) -> None:
        """Keep the contents of files here, in case that their jobs go into the spool."""
        self.file.blobs.root.mkdir(mode=0o700, exist_ok=True)
        for content in contents:
            self.file.blobs.put(content)

    # -- forward -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Forward in the background of this process, unless that happens already."""
        with self._lock:
            if self._forwarding is None or self._forwarding.done():
                self._forwarder = self._new_forwarder()
                self._forwarding = self._sessions.portal.spawn(self._forwarder.drain())

    def start_if_left(self) -> None:
        """Forward what an earlier process has left in the spool."""
        if self.file.path.exists():
            self.start()

    def _new_forwarder(self) -> Forwarder:
        return Forwarder(self.file, _SpoolTarget(self._sessions), self._sessions.world)

    async def flush(self) -> int:
        """Forward all jobs now. Returns how many left the spool here. Raises StoreError if the store is away."""
        return await self._new_forwarder().drain(stop_at_error=True)

    async def run(self) -> None:
        """Forward whatever appears in the spool, until cancelled; for workers."""
        while True:
            if not await self.file.thread.call(lambda: self.file.is_drained):
                await self._new_forwarder().drain()
            await self._sessions.world.sleep(WORKER_CHECK)

    async def _stop(self) -> None:
        """Before the portal ends: a short time for jobs that are on their way, unless the store is away. The others
        stay in the file."""
        with self._lock:
            forwarder, forwarding = self._forwarder, self._forwarding
            self._forwarder = self._forwarding = None
        if forwarder is not None and forwarding is not None:
            if not forwarder.last_error:
                await asyncio.wait([asyncio.wrap_future(forwarding)], timeout=CLOSE_LIMIT.total_seconds())
            forwarding.cancel()
            await asyncio.wait([asyncio.wrap_future(forwarding)])
        await self.file.thread.call(self.file.close)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._forwarder = self._forwarding = None
        self._puts = {}

    # -- handles -------------------------------------------------------------------------------------------------------

    async def arrived(self, job: str, limit: timedelta | None, *, tells: bool = False) -> str:
        """Wait until a job has left the spool, and return the id under which the store knows it. StoreUnavailable after
        `limit`; Refused if the store refused it."""
        world = self._sessions.world
        waited, has_told = timedelta(), False
        while True:
            spooled = await self.file.thread.call(lambda: self.file.find(job))
            if spooled is None:
                return await self.file.thread.call(lambda: self.file.answer_for(job)) or job
            if spooled.refused:
                raise Refused(
                    f"job {job} is set aside in the spool {self.file.path}: {spooled.refused}; "
                    "see `daybreak spool`, then retry or drop it there"
                )
            if limit is not None and waited >= limit:
                raise StoreUnavailable(self._waits(spooled))
            self.start()
            if tells and not has_told and waited >= SAY_AFTER:
                has_told = True
                print(f"daybreak: {self._waits(spooled)}", file=sys.stderr)  # noqa: T201 - for the person who waits
            await world.sleep(ARRIVAL_CHECK)
            waited += ARRIVAL_CHECK

    def _waits(self, spooled: SpooledJob) -> str:
        error = self.file.status().last_error
        return f"job {spooled.spec.id} waits in the spool {self.file.path} until the store can be reached" + (
            f": {error}" if error else ""
        )


class _SpoolTarget:
    """The store of an app."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def client(self) -> Client:
        with patience.within(REOPEN_LIMIT.total_seconds()):
            return await self._sessions.client()

    async def file_store(self) -> FileStore:
        return await self._sessions.files.store()

    async def provide(self, client: Client, resources: Mapping[str, ResourceSettings]) -> None:
        await provide(client, [_resource(name, settings) for name, settings in resources.items()])


def _resource(name: str, settings: ResourceSettings) -> Resource:
    resource = Resource(name)
    resource.settings = settings
    return resource
