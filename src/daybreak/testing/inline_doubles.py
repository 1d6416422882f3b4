"""Test doubles for the inner parts of an app in inline mode. None of them waits for another thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from daybreak.api.portal import Portal
from daybreak.api.queues.consumer import QueueConsumer, consumers
from daybreak.api.store_sessions import Sessions
from daybreak.client.client import Client
from daybreak.core.errors import DaybreakError, LeaseLost, Refused, WrongState
from daybreak.core.model import Job, JobSpec, Lease
from daybreak.store.protocol import Beat, Inserted, InsertsNow, Watch
from daybreak.stores.memory import MemoryStore

if TYPE_CHECKING:
    from daybreak.testing.inline_mode import Inline

T = TypeVar("T")

ENDLESS_WAIT: Final = "in inline mode this wait would never end: move the clock with run.advance(...)"


class InlineStore(MemoryStore):
    """A memory store whose jobs can be inserted without a loop."""

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        return driven(self.insert(specs))


class InlineClient(Client):
    def __init__(self, run: Inline, by: str) -> None:
        super().__init__(run.store, by=by, world=run.clock)
        self._run = run

    async def _insert(self, specs: list[JobSpec], within: float) -> list[Inserted]:
        inserted = await self.store.insert(specs)
        self._run.accepted(specs, inserted)
        return inserted

    def submit_now(self, spec: JobSpec, store: InsertsNow, like: JobSpec | None = None) -> str:
        return super().submit_now(spec, _ReportingStore(self._run, store), like)

    async def wait(self, job: str, timeout: timedelta | None = None) -> Job:  # noqa: ASYNC109
        """Return a final job. A job that is not final would never become final, because only the test moves the
        clock."""
        found = await self.get(job)
        if found.is_final:
            return found
        if timeout is not None:
            raise TimeoutError
        raise WrongState(job, found.state.value, ENDLESS_WAIT)

    async def wait_for_change(self, watch: Watch, longest: timedelta, *, what: str, is_limited: bool) -> None:
        if is_limited:
            raise TimeoutError
        raise Refused(f"{what}: {ENDLESS_WAIT}")


class _ReportingStore:
    """Reports inserted jobs to inline mode, which calls the hooks."""

    def __init__(self, run: Inline, store: InsertsNow) -> None:
        self._run = run
        self._store = store

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        inserted = self._store.insert_now(specs)
        self._run.accepted(specs, inserted)
        return inserted


class InlineSessions(Sessions):
    """One store for all loops. After every call, the jobs that are due run."""

    def __init__(self, run: Inline, portal: Portal, by: str) -> None:
        super().__init__(lambda: run.store, run.clock, by, files=(run.files.as_uri(), ""))
        self.portal = portal
        self._run = run
        self._client = InlineClient(run, by)
        consumers[self] = _IdleConsumer(self)

    async def here(self, work: Coroutine[Any, Any, T]) -> T:
        result = await work
        await self._run.awork()
        return result

    async def client(self) -> Client:
        return self._client

    def client_if_open(self) -> Client:
        return self._client

    def insert(self, spec: JobSpec, template: JobSpec | None = None) -> str:
        job = self._client.submit_now(spec, self._run.store, template)
        self._run.work()
        return job

    def close(self) -> None:
        """Do nothing: the store exists until the block ends."""

    async def aclose(self) -> None: ...


class _IdleConsumer(QueueConsumer):
    """Sends no heartbeats: while the test's clock stands still, no lease runs out."""

    def start(self) -> None: ...


class InlinePortal(Portal):
    """Runs coroutines in the caller's thread, on a separate loop."""

    def __init__(self) -> None:
        super().__init__()
        self._own: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if on_a_loop():  # the running loop is blocked meanwhile
            return _in_thread(work)
        if self._is_closed:
            return asyncio.run(work)
        if self._own is None:
            self._own = asyncio.new_event_loop()
        return self._own.run_until_complete(work)

    def run_here(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine, never in another thread."""
        return driven(work) if on_a_loop() else self.run(work)

    def spawn(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        work.close()
        raise DaybreakError("in inline mode nothing can run in the background")

    def close(self) -> None:
        self._is_closed = True
        own, self._own = self._own, None
        if own is None:
            return
        thread = threading.Thread(target=_close, args=(own,), name="daybreak-inline")
        thread.start()  # in a thread, because another loop may be running here
        thread.join()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(_end_all())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _end_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class InlineReporter:
    """Writes the progress and checkpoints of a job directly to the store. The progress of a call is that of all its
    jobs, which are its `fellows`."""

    def __init__(
        self,
        store: MemoryStore,
        lease: Lease,
        on_progress: Callable[[Lease, float, str], None],
        fellows: Sequence[Lease] = (),
    ) -> None:
        self._store = store
        self._lease = lease
        self._on_progress = on_progress
        self._fellows = fellows or (lease,)

    def progress(self, fraction: float, message: str) -> None:
        for lease in self._fellows:
            if self._extend(Beat(seq=lease.seq, fence=lease.fence, progress=fraction, message=message)):
                self._on_progress(lease, fraction, message)

    def output(self, text: str) -> None: ...  # it is printed in the process of the test

    def keep(self, checkpoint: bytes) -> None:
        if not self._extend(Beat(seq=self._lease.seq, fence=self._lease.fence, checkpoint=checkpoint)):
            raise LeaseLost(self._lease.job, self._lease.fence)

    async def akeep(self, checkpoint: bytes) -> None:
        self.keep(checkpoint)

    def move_file(self, digest: str, *, up: bool) -> None: ...  # files are in a folder: nothing is copied

    async def amove_file(self, digest: str, *, up: bool) -> None: ...

    def _extend(self, beat: Beat) -> bool:
        return driven(self._store.extend([beat]))[0].held


def driven(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, such as those of the memory store."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    work.close()
    raise DaybreakError("this call would block the running event loop: write 'async with inline(app)'")


def _in_thread(work: Coroutine[Any, Any, T]) -> T:
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def serve() -> None:
        try:
            result.set_result(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - for the waiting caller
            result.set_exception(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(serve,), name="daybreak-inline")
    thread.start()
    thread.join()
    return result.result()


def on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
