"""The consumer of a process: claims items, sends the heartbeats of their leases, and reports their outcomes.

It also runs the background services of the store, because a queue may be used where no worker runs."""

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
REPORT_TIMEOUT: Final = timedelta(seconds=10)  # how long a report is retried while the store is out of reach
ITEMS: Final = frozenset({(TASK, VERSION)})


class QueueConsumer:
    """Extends the leases of taken items, on the portal's loop, as long as their handles are in use. It also runs the
    services, so that the items of a consumer that crashed become available again."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = weakref.ref(sessions)
        self._world = sessions.world
        self._portal = sessions.portal
        self._reset()
        self._portal.on_fork(self._reset)
        self._portal.on_close(self._stop)

    def _reset(self) -> None:
        self.id = f"consumer-{Ids(self._world)()}"
        self._lock = threading.Lock()
        # Weak references: if a handle is dropped without an outcome, its lease must run out, so that the item is
        # taken again.
        self._held: weakref.WeakValueDictionary[int, LeaseHandle] = weakref.WeakValueDictionary()
        self._background: concurrent.futures.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    # -- store ---------------------------------------------------------------------------------------------------------

    async def claim(self, store: Store, queue: str, limit: int, job: str | None = None) -> ExchangeResult:
        """Claim up to `limit` items, or only the one with this id. If the caller is cancelled during the claim, the
        claimed items are handed back."""
        claim = asyncio.create_task(self._source(store, queue).exchange([], ClaimRequest(ITEMS, limit, job=job)))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            with contextlib.suppress(StoreError):
                claimed = await claim
                unused = HandedBack(unused=True)
                await self._source(store, queue).exchange([(lease, unused) for lease in claimed.leases], None)
            raise

    async def report(self, store: Store, lease: Lease, outcome: Outcome) -> Settled:
        """Report an outcome, with retries while the store is out of reach: a repeated settlement changes nothing."""
        give_up_at = asyncio.get_running_loop().time() + REPORT_TIMEOUT.total_seconds()
        pause = timedelta(milliseconds=50)
        while True:
            try:
                return (await self._source(store, lease.spec.queue).exchange([(lease, outcome)], None)).settled[0]
            except StoreUnavailable:
                if asyncio.get_running_loop().time() >= give_up_at:
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
        [extended] = await store.extend([beat])
        return extended

    def _source(self, store: Store, *queues: str) -> LocalSource:
        return LocalSource(store, self._world, worker=self.id, queues=queues, lease_for=LEASE_FOR)

    # -- background ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the heartbeats and the services, unless they run already."""
        with self._lock:
            if self._background is None or self._background.done():
                self._background = self._portal.spawn(self._run())

    def hold(self, handles: Sequence[LeaseHandle]) -> None:
        """Extend the leases of these handles from now on."""
        self._held.update({handle.lease.seq: handle for handle in handles})

    def drop(self, handle: LeaseHandle) -> None:
        """Stop extending the lease of this handle."""
        if self._held.get(handle.lease.seq) is handle:
            del self._held[handle.lease.seq]

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        sessions = self._sessions()
        if sessions is None:
            return
        store = (await sessions.client()).store
        del sessions
        heartbeats = Heartbeats(
            self._source(store), self._world, lease_for=LEASE_FOR, leases=self._leases, on_reply=self._on_extended
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(heartbeats.run())
            group.create_task(run(default_services(store, self._world, name=self.id, lease_for=LEASE_FOR), self._world))

    def _leases(self) -> list[Lease]:
        return [handle.lease for handle in list(self._held.values())]

    def _on_extended(self, lease: Lease, extended: Extended) -> None:
        handle = self._held.get(lease.seq)
        if handle is not None and handle.fence == lease.fence:  # the item was not taken again meanwhile
            handle.on_extended(extended)

    async def _stop(self) -> None:
        """Called before the portal ends: hand the held items back, uncharged."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        sessions, handles = self._sessions(), list(self._held.values())
        leases = [handle.lease for handle in handles]
        for handle in handles:
            handle.on_extended(Extended(held=False))
        if sessions is not None and leases:
            with contextlib.suppress(StoreError):
                store = (await sessions.client()).store
                queues = dict.fromkeys(lease.spec.queue for lease in leases)
                await self._source(store, *queues).exchange([(lease, HandedBack()) for lease in leases], None)


consumers: weakref.WeakKeyDictionary[Sessions, QueueConsumer] = weakref.WeakKeyDictionary()


def consumer_of(sessions: Sessions) -> QueueConsumer:
    """The consumer of an app's store; it is created on first use."""
    consumer = consumers.get(sessions)
    if consumer is None:
        consumer = consumers[sessions] = QueueConsumer(sessions)
    return consumer
