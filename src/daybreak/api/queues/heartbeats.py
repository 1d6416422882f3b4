"""Who takes items in this process. Without a worker nobody else would look after the store, so it does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from daybreak.api.queues.items import TASK, VERSION
from daybreak.api.store_sessions import Sessions
from daybreak.core.errors import StoreError, StoreUnavailable
from daybreak.core.model import HandedBack, Lease, Outcome
from daybreak.services.runner import default_services, run
from daybreak.store.protocol import Beat, Extended, Store
from daybreak.system.ports import Ids
from daybreak.worker.supervisor.heartbeats import Heartbeats
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult, LocalSource, Settled

if TYPE_CHECKING:
    from daybreak.api.queues.leases import LeaseHandle

LEASE_FOR: Final = timedelta(seconds=10)
PATIENCE: Final = timedelta(seconds=10)  # with a store that is out of reach
ITEMS: Final = frozenset({(TASK, VERSION)})


class QueueHeartbeats:
    """Keeps taken leases alive, on the portal's loop, as long as their handles are in use; and runs the services: what
    another taker left behind when it died comes back."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = weakref.ref(sessions)
        self._world = sessions.world
        self._portal = sessions.portal
        self._begin_anew()
        self._portal.on_fork(self._begin_anew)
        self._portal.on_close(self._stop)

    def _begin_anew(self) -> None:
        self.id = f"taker-{Ids(self._world)()}"
        self._lock = threading.Lock()
        # Weak: a handle that was dropped without an outcome must not be kept alive for ever, its item is to run again.
        self._held: weakref.WeakValueDictionary[int, LeaseHandle] = weakref.WeakValueDictionary()
        self._serving: concurrent.futures.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    # -- asking the store ----------------------------------------------------------------------------------------------

    async def claim(self, store: Store, queue: str, limit: int) -> ExchangeResult:
        """Up to `limit` items. Whoever stops waiting in the midst of it leaves none behind: they are handed back."""
        asking = asyncio.create_task(self._source(store, queue).exchange([], ClaimRequest(ITEMS, limit)))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            with contextlib.suppress(StoreError):
                taken = await asking
                unused = HandedBack(unused=True)
                await self._source(store, queue).exchange([(lease, unused) for lease in taken.leases], None)
            raise

    async def report(self, store: Store, lease: Lease, outcome: Outcome) -> Settled:
        """Asked again while the store is out of reach: a repeated settlement is harmless."""
        give_up = asyncio.get_running_loop().time() + PATIENCE.total_seconds()
        pause = timedelta(milliseconds=50)
        while True:
            try:
                return (await self._source(store, lease.spec.queue).exchange([(lease, outcome)], None)).settled[0]
            except StoreUnavailable:
                if asyncio.get_running_loop().time() >= give_up:
                    raise
                await self._world.sleep(pause * (0.5 + self._world.chance.random()))
                pause = min(pause * 2, timedelta(seconds=2))

    async def extend(self, store: Store, lease: Lease, progress: float | None = None, message: str = "") -> Extended:
        beat = Beat(
            seq=lease.seq,
            fence=lease.fence,
            lease_for=LEASE_FOR,
            job=lease.job,
            progress=progress,
            message=message,
        )
        [answer] = await store.extend([beat])
        return answer

    def _source(self, store: Store, *queues: str) -> LocalSource:
        return LocalSource(store, self._world, worker=self.id, queues=queues, lease_for=LEASE_FOR)

    # -- in the background ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Look after the store from now on."""
        with self._lock:
            if self._serving is None or self._serving.done():
                self._serving = self._portal.spawn(self._serve())

    def keep(self, handles: Sequence[LeaseHandle]) -> None:
        self._held.update({handle.lease.seq: handle for handle in handles})

    def let_go(self, handle: LeaseHandle) -> None:
        if self._held.get(handle.lease.seq) is handle:
            del self._held[handle.lease.seq]

    async def _serve(self) -> None:
        self._task = asyncio.current_task()
        sessions = self._sessions()
        if sessions is None:
            return
        store = (await sessions.client()).store
        del sessions
        keeper = Heartbeats(
            self._source(store), self._world, lease_for=LEASE_FOR, leases=self._leases, on_reply=self._heard
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(keeper.run())
            group.create_task(run(default_services(store, self._world, name=self.id, lease_for=LEASE_FOR), self._world))

    def _leases(self) -> list[Lease]:
        return [handle.lease for handle in list(self._held.values())]

    def _heard(self, lease: Lease, answer: Extended) -> None:
        handle = self._held.get(lease.seq)
        if handle is not None and handle.fence == lease.fence:  # not of one that was taken again meanwhile
            handle.heard(answer)

    async def _stop(self) -> None:
        """The portal ends: what is still held goes back, uncharged."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        sessions, handles = self._sessions(), list(self._held.values())
        leases = [handle.lease for handle in handles]
        for handle in handles:
            handle.heard(Extended(held=False))
        if sessions is not None and leases:
            with contextlib.suppress(StoreError):
                store = (await sessions.client()).store
                queues = dict.fromkeys(lease.spec.queue for lease in leases)
                await self._source(store, *queues).exchange([(lease, HandedBack()) for lease in leases], None)


takers: weakref.WeakKeyDictionary[Sessions, QueueHeartbeats] = weakref.WeakKeyDictionary()


def taker_of(sessions: Sessions) -> QueueHeartbeats:
    """One for each app and store."""
    if (found := takers.get(sessions)) is None:
        found = takers[sessions] = QueueHeartbeats(sessions)
    return found
