"""Heartbeats: keeps every lease alive, carries what running jobs say, and brings back what is asked of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from daybreak.core.errors import StoreError
from daybreak.core.model import Lease
from daybreak.store.protocol import Beat, Extended
from daybreak.system import patience
from daybreak.system.ports import World
from daybreak.worker.supervisor.lease_source import Source

_log = logging.getLogger("daybreak.worker")

PROGRESS_EVERY: Final = 0.25
Heard = Callable[[Lease, Extended], None]
Kept = Callable[[bool], None]


class Mark(NamedTuple):
    """What is said of a lease; None leaves it as it is."""

    alone: bool | None = None
    begun: bool | None = None


NO_MARK: Final = Mark()


class Heartbeats:
    """Beats for each lease three times in its length. One call at a time, with all that there is to say."""

    def __init__(
        self, source: Source, world: World, *, lease_for: timedelta, held: Callable[[], list[Lease]], heard: Heard
    ) -> None:
        self._source = source
        self._world = world
        self._lease_for = lease_for
        self._every = lease_for.total_seconds() / 3
        self._held = held
        self._heard = heard
        self._beaten_at: dict[int, float] = {}
        self._progress: dict[int, tuple[float, str]] = {}
        self._checkpoints: dict[int, tuple[bytes, list[Kept]]] = {}
        self._marks: dict[int, tuple[Mark, list[Kept]]] = {}
        self._progress_at = 0.0
        self._ask_all = False
        self._wake = asyncio.Event()

    # -- what is to be said --------------------------------------------------------------------------------------------

    def progress(self, lease: Lease, fraction: float, message: str) -> None:
        self._progress[lease.seq] = (fraction, message)
        self._wake.set()

    def keep(self, lease: Lease, checkpoint: bytes, kept: Kept) -> None:
        """Make a checkpoint durable. Of several that wait for one job, the latest is written and all are answered."""
        _, others = self._checkpoints.get(lease.seq, (b"", []))
        self._checkpoints[lease.seq] = (checkpoint, [*others, kept])
        self._wake.set()

    def mark(self, lease: Lease, kept: Kept, *, alone: bool | None = None, begun: bool | None = None) -> None:
        """Say in the lease whether its job runs alone, and whether it has begun."""
        before, others = self._marks.get(lease.seq, (NO_MARK, []))
        mark = Mark(before.alone if alone is None else alone, before.begun if begun is None else begun)
        self._marks[lease.seq] = (mark, [*others, kept])
        self._wake.set()

    def ask(self) -> None:
        """Someone wants something of a job here: beat now, the answers will tell."""
        self._ask_all = True
        self._wake.set()

    # -- saying it -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        pause = timedelta(milliseconds=100)
        while True:
            await self._rest()
            leases = {lease.seq: lease for lease in self._held()}
            try:
                with patience.soon(self._lease_for.total_seconds() / 4):
                    await self._beat(leases)
                pause = timedelta(milliseconds=100)
            except StoreError as error:
                wait = pause * (0.5 + self._world.chance.random())
                pause = min(pause * 2, timedelta(seconds=2), self._lease_for / 8)
                _log.warning("heartbeat: %s; trying again in %.1f s", error, wait.total_seconds())
                await self._world.sleep(wait)

    async def _rest(self) -> None:
        """Until something must be said: at once for checkpoints and requests, soon for progress, in time for leases."""
        while not (self._ask_all or self._checkpoints or self._marks):
            now = time.monotonic()
            self._beaten_at = {lease.seq: self._beaten_at.get(lease.seq, now) for lease in self._held()}
            due = now + self._every / (4 if self._beaten_at else 2)
            if self._progress and self._progress_at + PROGRESS_EVERY <= now:
                return
            if self._progress:
                due = min(due, self._progress_at + PROGRESS_EVERY)
            if any(now - beaten_at >= self._every for beaten_at in self._beaten_at.values()):
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(max(due - now, 0.001)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _beat(self, leases: dict[int, Lease]) -> None:
        now = time.monotonic()
        self._beaten_at = {seq: self._beaten_at.get(seq, now) for seq in leases}
        everyone, self._ask_all = self._ask_all, False
        progress, self._progress = self._progress, {}
        checkpoints, marks = dict(self._checkpoints), dict(self._marks)
        self._wake.clear()
        said = [
            lease
            for seq, lease in leases.items()
            if everyone
            or seq in progress
            or seq in checkpoints
            or seq in marks
            # Half an interval early, so that leases claimed close together are beaten for together.
            or now - self._beaten_at[seq] >= self._every / 2
        ]
        answers: list[Extended] = []
        if said:
            try:
                answers = await self._source.extend(
                    [self._spoken(lease, progress, checkpoints, marks) for lease in said]
                )
            except BaseException:
                self._progress = {**progress, **self._progress}
                self._ask_all = self._ask_all or everyone
                raise
        self._progress_at = now
        self._forget(checkpoints, marks)
        for lease, answer in zip(said, answers, strict=True):
            self._beaten_at[lease.seq] = now
            for kept in (*checkpoints.pop(lease.seq, (b"", []))[1], *marks.pop(lease.seq, (NO_MARK, []))[1]):
                kept(answer.held)
            self._heard(lease, answer)
        for _, waiting in (*checkpoints.values(), *marks.values()):  # of jobs that are no longer held here
            for kept in waiting:
                kept(False)

    def _spoken(
        self,
        lease: Lease,
        progress: dict[int, tuple[float, str]],
        checkpoints: dict[int, tuple[bytes, list[Kept]]],
        marks: dict[int, tuple[Mark, list[Kept]]],
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

    def _forget(
        self, checkpoints: dict[int, tuple[bytes, list[Kept]]], marks: dict[int, tuple[Mark, list[Kept]]]
    ) -> None:
        """Drop what has been said, but nothing that was asked for meanwhile."""
        for seq, sent in checkpoints.items():
            if self._checkpoints.get(seq) is sent:
                del self._checkpoints[seq]
            elif seq in self._checkpoints:
                newest, waiting = self._checkpoints[seq]
                self._checkpoints[seq] = (newest, waiting[len(sent[1]) :])
        for seq, marked in marks.items():
            if self._marks.get(seq) is marked:
                del self._marks[seq]
            elif seq in self._marks:
                latest, asking = self._marks[seq]
                self._marks[seq] = (latest, asking[len(marked[1]) :])
