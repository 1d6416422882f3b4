"""Sends heartbeats: extends every lease, saves progress and checkpoints, and receives requests to cancel or suspend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from daybreak.core.errors import StoreError
from daybreak.core.model import Lease
from daybreak.store.protocol import Beat, Extended
from daybreak.system import patience
from daybreak.system.ports import Clock, World
from daybreak.worker.supervisor.exchange_retry import STORE_LOG
from daybreak.worker.supervisor.lease_source import Source

_log = logging.getLogger(STORE_LOG)

PROGRESS_INTERVAL: Final = 0.25  # seconds between two writes of progress
OnReply = Callable[[Lease, Extended], None]
OnProgress = Callable[[Lease, float, str], None]
OnSaved = Callable[[bool], None]


class Mark(NamedTuple):
    """What to write into a lease about its job; None leaves the value as it is."""

    alone: bool | None = None
    begun: bool | None = None


NO_MARK: Final = Mark()


class Heartbeats:
    """Extends each lease three times in its length. One call at a time, which carries everything that is waiting.

    `leases` returns the leases to extend; `on_reply` gets the reply of the store for each of them. `on_progress` gets
    the progress that the store has accepted."""

    def __init__(
        self,
        source: Source,
        world: World,
        *,
        lease_for: timedelta,
        leases: Callable[[], list[Lease]],
        on_reply: OnReply,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._source = source
        self._world = world
        self._clock = Clock(world)
        self._lease_for = lease_for
        self._interval = lease_for.total_seconds() / 3
        self._leases = leases
        self._on_reply = on_reply
        self._on_progress = on_progress
        self._sent_at: dict[int, float] = {}
        self._progress: dict[int, tuple[float, str]] = {}
        self._checkpoints: dict[int, tuple[bytes, list[OnSaved]]] = {}
        self._marks: dict[int, tuple[Mark, list[OnSaved]]] = {}
        self._progress_at = 0.0
        self._is_for_all = False
        self._wake = asyncio.Event()

    # -- what to send --------------------------------------------------------------------------------------------------

    def progress(self, lease: Lease, fraction: float, message: str) -> None:
        self._progress[lease.seq] = (fraction, message)
        self._wake.set()

    def save_checkpoint(self, lease: Lease, checkpoint: bytes, on_saved: OnSaved) -> None:
        """Make a checkpoint durable. `on_saved` gets False if the lease was lost.

        If several checkpoints of one job are waiting, the latest is written, and `on_saved` of all is called."""
        _, waiting = self._checkpoints.get(lease.seq, (b"", []))
        self._checkpoints[lease.seq] = (checkpoint, [*waiting, on_saved])
        self._wake.set()

    def mark(self, lease: Lease, on_saved: OnSaved, *, alone: bool | None = None, begun: bool | None = None) -> None:
        """Write into the lease whether its job runs alone, and whether it has started."""
        before, waiting = self._marks.get(lease.seq, (NO_MARK, []))
        mark = Mark(before.alone if alone is None else alone, before.begun if begun is None else begun)
        self._marks[lease.seq] = (mark, [*waiting, on_saved])
        self._wake.set()

    def send_now(self) -> None:
        """Send a heartbeat for every lease now: there is a request for a job of this worker, and the reply brings
        it."""
        self._is_for_all = True
        self._wake.set()

    # -- sending -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send heartbeats forever."""
        pause = timedelta(milliseconds=100)
        while True:
            await self._wait_until_due()
            leases = {lease.seq: lease for lease in self._leases()}
            try:
                with patience.soon(self._lease_for.total_seconds() / 4):
                    await self._send(leases)
                pause = timedelta(milliseconds=100)
            except StoreError as error:
                wait = pause * (0.5 + self._world.chance.random())
                pause = min(pause * 2, timedelta(seconds=2), self._lease_for / 8)
                _log.warning("heartbeat: %s; trying again in %.1f s", error, wait.total_seconds())
                await self._world.sleep(wait)

    async def _wait_until_due(self) -> None:
        """Wait until something must be sent: checkpoints, marks and requests at once, progress soon, leases in time."""
        while not (self._is_for_all or self._checkpoints or self._marks):
            now = self._clock.now()
            self._sent_at = {lease.seq: self._sent_at.get(lease.seq, now) for lease in self._leases()}
            due = now + self._interval / (4 if self._sent_at else 2)
            if self._progress and self._progress_at + PROGRESS_INTERVAL <= now:
                return
            if self._progress:
                due = min(due, self._progress_at + PROGRESS_INTERVAL)
            if any(now - sent_at >= self._interval for sent_at in self._sent_at.values()):
                return
            self._wake.clear()
            try:
                async with self._clock.timeout(max(due - now, 0.001)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _send(self, leases: dict[int, Lease]) -> None:
        now = self._clock.now()
        self._sent_at = {seq: self._sent_at.get(seq, now) for seq in leases}
        is_for_all, self._is_for_all = self._is_for_all, False
        progress, self._progress = self._progress, {}
        checkpoints, marks = dict(self._checkpoints), dict(self._marks)
        self._wake.clear()
        extended = [
            lease
            for seq, lease in leases.items()
            if is_for_all
            or seq in progress
            or seq in checkpoints
            or seq in marks
            # Half an interval early, so that leases that were claimed close together are extended in one call.
            or now - self._sent_at[seq] >= self._interval / 2
        ]
        replies: list[Extended] = []
        if extended:
            try:
                replies = await self._source.extend(
                    [self._beat(lease, progress, checkpoints, marks) for lease in extended]
                )
            except BaseException:
                self._progress = {**progress, **self._progress}
                self._is_for_all = self._is_for_all or is_for_all
                raise
        self._progress_at = now
        self._forget_sent(checkpoints, marks)
        for lease, reply in zip(extended, replies, strict=True):
            self._sent_at[lease.seq] = now
            for on_saved in (*checkpoints.pop(lease.seq, (b"", []))[1], *marks.pop(lease.seq, (NO_MARK, []))[1]):
                on_saved(reply.held)
            if self._on_progress is not None and lease.seq in progress and reply.held:
                self._on_progress(lease, *progress[lease.seq])
            self._on_reply(lease, reply)
        for _, waiting in (*checkpoints.values(), *marks.values()):  # of leases that are no longer held
            for on_saved in waiting:
                on_saved(False)

    def _beat(
        self,
        lease: Lease,
        progress: dict[int, tuple[float, str]],
        checkpoints: dict[int, tuple[bytes, list[OnSaved]]],
        marks: dict[int, tuple[Mark, list[OnSaved]]],
    ) -> Beat:
        mark = marks[lease.seq][0] if lease.seq in marks else NO_MARK
        fraction, message = progress.get(lease.seq, (None, ""))
        return Beat(
            seq=lease.seq,
            fence=lease.fence,
            lease_for=lease.lease_for,
            progress=fraction,
            message=message,
            checkpoint=checkpoints[lease.seq][0] if lease.seq in checkpoints else None,
            alone=mark.alone,
            begun=mark.begun,
            job=lease.job,
        )

    def _forget_sent(
        self, checkpoints: dict[int, tuple[bytes, list[OnSaved]]], marks: dict[int, tuple[Mark, list[OnSaved]]]
    ) -> None:
        """Drop what was sent, and keep what was added while the call was under way."""
        for seq, sent in checkpoints.items():
            if self._checkpoints.get(seq) is sent:
                del self._checkpoints[seq]
            elif seq in self._checkpoints:
                latest, waiting = self._checkpoints[seq]
                self._checkpoints[seq] = (latest, waiting[len(sent[1]) :])
        for seq, sent_mark in marks.items():
            if self._marks.get(seq) is sent_mark:
                del self._marks[seq]
            elif seq in self._marks:
                latest_mark, waiting = self._marks[seq]
                self._marks[seq] = (latest_mark, waiting[len(sent_mark[1]) :])
