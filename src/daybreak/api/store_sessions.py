"""An app's open stores. A store that outlives the process is opened once per event loop, on first use.

A store in the memory of this process is opened only on the portal's loop; calls from other loops are run there."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from daybreak.api.app_files import AppFiles
from daybreak.api.portal import Portal
from daybreak.client.client import Client
from daybreak.client.connect_timeout import ConnectTimeout
from daybreak.core.errors import DaybreakError, OutcomeUnknown, StoreError, StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.store.protocol import InsertsNow, Store
from daybreak.system import patience
from daybreak.system.ports import Ids, World

if TYPE_CHECKING:
    from daybreak.api.hooks import Hooks
    from daybreak.api.spooled_submits import SpooledSubmits

P = ParamSpec("P")
R = TypeVar("R")

REOPEN_AFTER: Final = timedelta(seconds=5)  # no optional caller tries to open a failed store again before this time
FLUSH_TIMEOUT: Final = timedelta(seconds=2)  # for writing the measured durations when a store is closed


class Sessions:
    """The open clients of an app, by event loop. `connect_timeout` is the one that `make` passes to its stores. `files`
    is the setting of that name and the URL of the store. `spool` is the file for jobs that are submitted while the
    store is away."""

    def __init__(
        self,
        make: Callable[[], Store],
        world: World,
        by: str,
        connect_timeout: ConnectTimeout | None = None,
        files: tuple[str | None, str] = (None, ""),
        spool: Path | None = None,
    ) -> None:
        self.portal = Portal()
        self.world = world
        self.by = by
        self._make = make
        self._connect_timeout = connect_timeout
        self._open: dict[asyncio.AbstractEventLoop, Client] = {}
        self._open_locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._background_opens: dict[asyncio.AbstractEventLoop, _BackgroundOpen] = {}
        self._unflushed: list[Client] = []  # clients of ended loops that hold durations not yet written to the store
        unopened = make()
        self._is_per_loop = unopened.traits.persistent
        self._blocking_store: InsertsNow | None = None
        self.provided: dict[str, object] = {}  # the declared settings of resources that were written to the store
        self.seal: bytes | None = None  # the store's key for secrets in cache keys, once it was read
        self.new_id = Ids(world)
        self.files = AppFiles(self, *files)
        self.hooks: Hooks | None = None  # of the app, once it has set them
        self.portal.on_fork(self._forget)
        self.portal.on_close(self.aclose)
        self.spool: SpooledSubmits | None = None
        if spool is not None:
            from daybreak.api.spooled_submits import SpooledSubmits  # noqa: PLC0415 - few apps have a spool

            self.spool = SpooledSubmits(self, spool, files[1], unopened)

    # -- where a call runs ---------------------------------------------------------------------------------------------

    async def here(self, work: Coroutine[Any, Any, R]) -> R:
        """Run the coroutine on this loop if the store can be used here, otherwise on the portal's loop."""
        if self._is_per_loop or asyncio.get_running_loop() is self.portal.loop:
            return await work
        return await asyncio.wrap_future(self.portal.spawn(work))

    async def client(self) -> Client:
        """The client of the running loop, with its store open."""
        loop = asyncio.get_running_loop()
        if not self._is_per_loop and loop is not self.portal.loop:
            raise DaybreakError(
                "this store is inside one process and bound to the event loop of its app: use the app's own methods "
                "here (asubmit, aresult, aworker ...); a worker in another process would never see its jobs"
            )
        client = self._open.get(loop)
        if client is None:
            async with self._open_locks.setdefault(loop, asyncio.Lock()):
                client = self._open.get(loop)
                if client is None:
                    await self._prune()
                    client = Client(await self._make().open(), by=self.by, world=self.world)
                    if self._connect_timeout is not None:
                        client.durations.add_connect_timeout(self._connect_timeout)
                    self._hand_over(client)
                    self._open[loop] = client
                    if loop is self.portal.loop:
                        self._blocking_store = client.store if isinstance(client.store, InsertsNow) else None
                    if self.spool is not None:
                        self.spool.start_if_left()
        return client

    @property
    def is_open(self) -> bool:
        """Whether the store of blocking callers is open."""
        return self.portal.loop is not None and self.portal.loop in self._open

    def client_if_open(self) -> Client | None:
        """The client of the running loop if its store is open, without waiting."""
        return self._open.get(asyncio.get_running_loop())

    async def client_within(self, wait: timedelta) -> Client | None:
        """The client of the running loop, for callers that can work without it: None if opening its store takes longer.
        The store then continues to open in the background, and later callers do not wait for it again. A StoreError is
        raised once; for `REOPEN_AFTER` later callers get None."""
        loop = asyncio.get_running_loop()
        if (client := self._open.get(loop)) is not None:
            return client
        opening = self._background_opens.get(loop)
        if opening is None or opening.is_over(loop.time()):
            opening = _BackgroundOpen(loop.create_task(self.client()), loop.time(), wait)
            self._background_opens[loop] = opening
        elif opening.has_failed:
            return None
        await asyncio.wait([opening.task], timeout=max(opening.until - loop.time(), 0))
        return opening.task.result() if opening.task.done() else None

    async def _prune(self) -> None:
        """Close the stores of loops that have ended, and keep the durations that their clients measured."""
        for loop in [loop for loop in self._background_opens if loop.is_closed()]:
            del self._background_opens[loop]
        for loop in [loop for loop in self._open if loop.is_closed()]:
            self._open_locks.pop(loop, None)
            client = self._open.pop(loop)
            if client.durations.has_news:
                self._unflushed.append(client)
            with contextlib.suppress(Exception):
                async with asyncio.timeout(FLUSH_TIMEOUT.total_seconds()):
                    await client.store.close()

    def _hand_over(self, to: Client) -> None:
        """Pass the durations of ended loops to an open client, which writes them to the store."""
        unflushed, self._unflushed = self._unflushed, []
        for client in unflushed:
            to.durations.take_over(client.durations)

    # -- blocking callers ----------------------------------------------------------------------------------------------

    def insert(self, spec: JobSpec, template: JobSpec | None = None) -> str:
        """Submit for a blocking caller: in the caller's thread if the store supports it, otherwise through the portal.
        `template`, if given, differs from `spec` only in the id and the arguments."""
        if self.spool is not None:
            return self.spool.insert(spec, lambda: self._insert(spec, template))
        return self._insert(spec, template)

    async def ainsert(self, spec: JobSpec) -> str:
        """Submit on the running loop."""
        if self.spool is not None:
            return await self.spool.ainsert(spec)
        return await (await self.client()).submit(spec)

    def _insert(self, spec: JobSpec, template: JobSpec | None) -> str:
        loop = self.portal.loop
        client = None if loop is None else self._open.get(loop)
        if client is None:
            client = self.portal.run(self.client())
        if (store := self._blocking_store) is None:
            return self.portal.run(client.submit(spec))
        # Both paths share one time limit: the context carries the remaining time to the portal.
        with patience.within(client.patience.total_seconds()):
            try:
                return client.submit_now(spec, store, template)
            except OutcomeUnknown as error:
                unknown = error
            except StoreUnavailable:
                if patience.is_over():
                    raise
                unknown = None
            return self._insert_again(client, spec, unknown)

    def _insert_again(self, client: Client, spec: JobSpec, unknown: OutcomeUnknown | None) -> str:
        """Submit again through the portal, which retries while the store is out of reach. The caller chose the id, so
        a repeated insert changes nothing."""
        if unknown is not None and patience.is_over():
            raise unknown
        try:
            return self.portal.run(client.submit(spec))
        except StoreUnavailable as error:
            raise unknown or error from None

    def close(self) -> None:
        """Close the store of blocking callers. Using the app again opens it again."""
        ended = [client for loop, client in list(self._open.items()) if loop.is_closed()]
        if any(client.durations.has_news for client in (*ended, *self._unflushed)) and not self.portal.is_here:
            with contextlib.suppress(Exception):  # an open client takes over their durations and writes them
                self.portal.run(self.client_within(FLUSH_TIMEOUT))
        self.portal.close()

    async def aclose(self) -> None:
        """Close the store of the running loop."""
        loop = asyncio.get_running_loop()
        self._open_locks.pop(loop, None)
        self._background_opens.pop(loop, None)
        self.provided.clear()  # the next open may be of another store
        self.seal = None
        client = self._open.pop(loop, None)
        if client is not None:
            if loop is self.portal.loop:
                self._blocking_store = None
            await self._prune()
            self._hand_over(client)
            if client.durations.has_news:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_TIMEOUT.total_seconds()):
                        await client.durations.sync()
            await client.store.close()

    def _forget(self) -> None:
        """In a forked child, drop the parent's connections without closing them. The next use opens new ones."""
        self.provided = {}
        if self._connect_timeout is not None:
            self._connect_timeout.forked()
        self._parent_open = self._open  # keep a reference, so that garbage collection does not close them
        self._open = {}
        self._open_locks = {}
        self._background_opens = {}
        self._unflushed = []
        self._blocking_store = None


class _BackgroundOpen:
    """A store that is being opened in the background."""

    def __init__(self, task: asyncio.Task[Client], started_at: float, wait: timedelta) -> None:
        self.task = task
        self.until = started_at + wait.total_seconds()
        self._ended_at = started_at
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Client]) -> None:
        self._ended_at = task.get_loop().time()
        if not task.cancelled():
            task.exception()  # retrieve it, so that asyncio does not warn if nobody waits any more

    @property
    def has_failed(self) -> bool:
        return self.task.done() and not self.task.cancelled() and isinstance(self.task.exception(), StoreError)

    def is_over(self, now: float) -> bool:
        """Whether a new attempt is due. If this attempt succeeded, its store was closed since."""
        is_recent = now - self._ended_at < REOPEN_AFTER.total_seconds()
        return self.task.done() and not (self.has_failed and is_recent)


class _HasSessions(Protocol):
    @property
    def _sessions(self) -> Sessions: ...


S = TypeVar("S", bound=_HasSessions)


def on_store_loop(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Decorate an async method so that it runs on a loop where its store can be used."""

    async def hop(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._sessions.here(method(self, *args, **kwargs))

    functools.update_wrapper(hop, method)
    return hop
