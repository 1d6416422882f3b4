"""An app's open stores: opened on first use, one for each event loop where a store can be shared between them.

A store that only this process sees lives on the portal's loop alone; calls from other loops hop there."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from daybreak.client import Client
from daybreak.errors import DaybreakError, StoreUnavailable
from daybreak.model import JobSpec
from daybreak.store import InsertsNow, Store
from daybreak.sync import Portal
from daybreak.world import Ids, World

P = ParamSpec("P")
R = TypeVar("R")


class Sessions:
    def __init__(self, make: Callable[[], Store], world: World, by: str) -> None:
        self.portal = Portal()
        self.world = world
        self.by = by
        self._make = make
        self._open: dict[asyncio.AbstractEventLoop, Client] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
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
                    self._open[loop] = found
                    if loop is self.portal.loop:
                        self._now = found.store if isinstance(found.store, InsertsNow) else None
        return found

    async def _prune(self) -> None:
        """Close what loops that have ended left open."""
        for loop in [loop for loop in self._open if loop.is_closed()]:
            self._opening.pop(loop, None)
            with contextlib.suppress(Exception):
                await self._open.pop(loop).store.close()

    # -- blocking ------------------------------------------------------------------------------------------------------

    def insert(self, spec: JobSpec) -> str:
        """Submit from a blocking caller: in its own thread where the store can, else through the portal."""
        client = self._open.get(self.portal.loop) if self.portal.loop is not None else None
        if client is None:
            client = self.portal.run(self.client())
        if (store := self._now) is not None:
            # Asked again by the patient way: the id is ours, so a repeat changes nothing.
            with contextlib.suppress(StoreUnavailable):
                return client.submit_now(spec, store)
        return self.portal.run(client.submit(spec))

    def close(self) -> None:
        """Close the store of blocking callers. Using the app again opens it anew."""
        self.portal.close()

    async def aclose(self) -> None:
        loop = asyncio.get_running_loop()
        self._opening.pop(loop, None)
        self.provided.clear()  # the store that is opened next may be another
        client = self._open.pop(loop, None)
        if client is not None:
            if loop is self.portal.loop:
                self._now = None
            if client.learning.is_due:
                await client.learning.tend()
            await client.store.close()

    def _forget(self) -> None:
        """In a forked child: the parent's connections are not ours to close. Drop them; the next use opens our own."""
        self.provided = {}
        self._left = self._open  # kept, so that nothing of them is closed by being forgotten
        self._open = {}
        self._opening = {}
        self._now = None


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
