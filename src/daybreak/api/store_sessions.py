"""An app's open stores: opened on first use, one for each event loop where a store can be shared between them.

A store that only this process sees lives on the portal's loop alone; calls from other loops hop there."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from daybreak.api.portal import Portal
from daybreak.client.client import Client
from daybreak.client.connect_timeout import ConnectTimeout
from daybreak.core.errors import DaybreakError, OutcomeUnknown, StoreError, StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.store.protocol import InsertsNow, Store
from daybreak.system import patience
from daybreak.system.ports import Ids, World

P = ParamSpec("P")
R = TypeVar("R")

BELIEVED_FOR: Final = timedelta(seconds=5)  # that a store cannot be opened, by those who can do without
TOLD_WITHIN: Final = timedelta(seconds=2)  # what was seen of how long things take, when a store is closed


class Sessions:
    """`connecting` is what `make` gives its stores."""

    def __init__(
        self, make: Callable[[], Store], world: World, by: str, connecting: ConnectTimeout | None = None
    ) -> None:
        self.portal = Portal()
        self.world = world
        self.by = by
        self._make = make
        self._connecting = connecting
        self._open: dict[asyncio.AbstractEventLoop, Client] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._hoped_for: dict[asyncio.AbstractEventLoop, _HopedFor] = {}
        self._untold: list[Client] = []  # of loops that have ended, with what was seen there of how long things take
        self._shared = make().traits.shared
        self._now: InsertsNow | None = None
        self.provided: dict[str, object] = {}  # what the store was told that the code says of resources
        self.new_id = Ids(world)
        self.portal.on_fork(self._forget)
        self.portal.on_close(self.aclose)

    # -- where a call runs ---------------------------------------------------------------------------------------------

    async def here(self, work: Coroutine[Any, Any, R]) -> R:
        """Run it on this loop if the store may be used from here, else on the portal's."""
        if self._shared or asyncio.get_running_loop() is self.portal.loop:
            return await work
        return await asyncio.wrap_future(self.portal.spawn(work))

    async def client(self) -> Client:
        """The client of the running loop, its store open."""
        loop = asyncio.get_running_loop()
        if not self._shared and loop is not self.portal.loop:
            raise DaybreakError(
                "this store lives in one process, on the loop of its app: use the app's own methods (asubmit, aresult, "
                "aworker ...) here; a worker in a process of its own would never see a job of it"
            )
        found = self._open.get(loop)
        if found is None:
            async with self._opening.setdefault(loop, asyncio.Lock()):
                found = self._open.get(loop)
                if found is None:
                    await self._prune()
                    found = Client(await self._make().open(), by=self.by, world=self.world)
                    if self._connecting is not None:
                        found.durations.add_connect_timeout(self._connecting)
                    self._hand_over(found)
                    self._open[loop] = found
                    if loop is self.portal.loop:
                        self._now = found.store if isinstance(found.store, InsertsNow) else None
        return found

    def client_if_open(self) -> Client | None:
        """That of the running loop, without a wait."""
        return self._open.get(asyncio.get_running_loop())

    async def client_within(self, wait: timedelta) -> Client | None:
        """The client of the running loop, for those who can do without: None if opening its store takes longer. It goes
        on beside them, and nobody who comes later waits for it once more. A StoreError is raised once, then believed
        for a while."""
        loop = asyncio.get_running_loop()
        if (found := self._open.get(loop)) is not None:
            return found
        hoped_for = self._hoped_for.get(loop)
        if hoped_for is None or hoped_for.is_over(loop.time()):
            hoped_for = self._hoped_for[loop] = _HopedFor(loop.create_task(self.client()), loop.time(), wait)
        elif hoped_for.was_in_vain:
            return None
        await asyncio.wait([hoped_for.task], timeout=max(hoped_for.until - loop.time(), 0))
        return hoped_for.task.result() if hoped_for.task.done() else None

    async def _prune(self) -> None:
        """Close what loops that have ended left open, and keep what they had collected."""
        for loop in [loop for loop in self._hoped_for if loop.is_closed()]:
            del self._hoped_for[loop]
        for loop in [loop for loop in self._open if loop.is_closed()]:
            self._opening.pop(loop, None)
            client = self._open.pop(loop)
            if client.durations.has_news:
                self._untold.append(client)
            with contextlib.suppress(Exception):
                async with asyncio.timeout(TOLD_WITHIN.total_seconds()):
                    await client.store.close()

    def _hand_over(self, to: Client) -> None:
        untold, self._untold = self._untold, []
        for client in untold:
            to.durations.take_over(client.durations)

    # -- blocking ------------------------------------------------------------------------------------------------------

    def insert(self, spec: JobSpec, like: JobSpec | None = None) -> str:
        """Submit from a blocking caller: in its own thread where the store can, else through the portal. `like` is the
        template from which it differs in its id and its arguments alone, if there is one."""
        loop = self.portal.loop
        client = None if loop is None else self._open.get(loop)
        if client is None:
            client = self.portal.run(self.client())
        if (store := self._now) is None:
            return self.portal.run(client.submit(spec))
        # Both ways have one patience: what is left of it goes along to the portal, with the context.
        with patience.within(client.patience.total_seconds()):
            try:
                return client.submit_now(spec, store, like)
            except OutcomeUnknown as error:
                unknown = error
            except StoreUnavailable:
                if patience.is_over():
                    raise
                unknown = None
            return self._insert_again(client, spec, unknown)

    def _insert_again(self, client: Client, spec: JobSpec, unknown: OutcomeUnknown | None) -> str:
        """By the way that asks again while the store is out of reach: the id is ours, so a repeat changes nothing."""
        if unknown is not None and patience.is_over():
            raise unknown
        try:
            return self.portal.run(client.submit(spec))
        except StoreUnavailable as error:
            raise unknown or error from None

    def close(self) -> None:
        """Close the store of blocking callers. Using the app again opens it anew."""
        ended = [client for loop, client in list(self._open.items()) if loop.is_closed()]
        if any(client.durations.has_news for client in (*ended, *self._untold)) and not self.portal.is_here:
            with contextlib.suppress(Exception):  # once open, it takes over what they have collected, and tells it
                self.portal.run(self.client_within(TOLD_WITHIN))
        self.portal.close()

    async def aclose(self) -> None:
        loop = asyncio.get_running_loop()
        self._opening.pop(loop, None)
        self._hoped_for.pop(loop, None)
        self.provided.clear()  # the store that is opened next may be another
        client = self._open.pop(loop, None)
        if client is not None:
            if loop is self.portal.loop:
                self._now = None
            await self._prune()
            self._hand_over(client)
            if client.durations.has_news:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TOLD_WITHIN.total_seconds()):
                        await client.durations.sync()
            await client.store.close()

    def _forget(self) -> None:
        """In a forked child: the parent's connections are not ours to close. Drop them; the next use opens our own."""
        self.provided = {}
        if self._connecting is not None:
            self._connecting.forked()
        self._left = self._open  # kept, so that nothing of them is closed by being forgotten
        self._open = {}
        self._opening = {}
        self._hoped_for = {}
        self._untold = []
        self._now = None


class _HopedFor:
    """A store that is being opened beside those who want it."""

    def __init__(self, task: asyncio.Task[Client], began: float, wait: timedelta) -> None:
        self.task = task
        self.until = began + wait.total_seconds()
        self._ended_at = began
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Client]) -> None:
        self._ended_at = task.get_loop().time()
        if not task.cancelled():
            task.exception()  # seen, also if nobody waits any more

    @property
    def was_in_vain(self) -> bool:
        return self.task.done() and not self.task.cancelled() and isinstance(self.task.exception(), StoreError)

    def is_over(self, now: float) -> bool:
        """Whether another try is worth it. One that went well has been closed since."""
        is_believed = self.was_in_vain and now - self._ended_at < BELIEVED_FOR.total_seconds()
        return self.task.done() and not is_believed


class _Homed(Protocol):
    @property
    def _sessions(self) -> Sessions: ...


S = TypeVar("S", bound=_Homed)


def homed(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """An async method of a face, run where its store may be used."""

    async def hop(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._sessions.here(method(self, *args, **kwargs))

    functools.update_wrapper(hop, method)
    return hop
