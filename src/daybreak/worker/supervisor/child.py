"""One child as the supervisor sees it: what it holds, how fast it is, and what it said."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from msgspec import Struct

from daybreak.core.model import Lease, Outcome
from daybreak.worker.launcher import ChildHandle
from daybreak.worker.wire import (
    CheckpointSaved,
    Ended,
    Exit,
    GetStack,
    ListenerThread,
    LogLine,
    Progress,
    Ready,
    Recall,
    Report,
    Returned,
    Run,
    SaveCheckpoint,
    SetupFailed,
    Stack,
    Stop,
    StopReason,
    Work,
    frame,
    to_supervisor,
)
from daybreak.worker.wire_reader import WireReader

_job_log = logging.getLogger("daybreak.job")

AHEAD: Final = 0.015  # seconds of measured work that a child may hold beyond what it is at, at least
WINDOW: Final = 0.002
AHEAD_AT_MOST: Final = 256
LONG_ENOUGH: Final = 0.0005  # seconds; of shorter jobs no more is held than must be, for the sake of an urgent one
SHORT: Final = 0.002  # seconds; jobs shorter than this compute rather than wait, and need no slots side by side


class Held(Struct, eq=False):
    """A lease in a child's hands. Times are of the loop's clock. `alive_at`: its latest sign of life. One that is ended
    because it hangs has a `story`, the `stack` it stood at, and when it had `begun_at`."""

    lease: Lease
    limit: float | None
    asked: StopReason | None = None
    end_at: float | None = None
    alone: bool = False
    alive_at: float = 0.0
    begun_at: float = 0.0
    stack: str = ""
    story: str = ""


class Listener(Protocol):
    """Who a child reports to."""

    def limit_of(self, lease: Lease) -> float | None: ...

    def on_ready(self, child: Child, tasks: frozenset[tuple[str, int]]) -> None: ...

    def on_ended(self, child: Child, ended: list[tuple[Held, Ended]]) -> None: ...

    def on_returned(self, child: Child, leases: list[Held]) -> None: ...

    def on_progress(self, lease: Lease, said: Progress) -> None: ...

    def on_keep(self, child: Child, lease: Lease, said: SaveCheckpoint) -> None: ...

    def on_broken(self, child: Child, error: str) -> None: ...

    def on_gone(self, child: Child) -> None: ...


@dataclass(eq=False)
class Child:
    """`blamed`: it is being ended for the sake of this job, which ends so; its neighbours are innocent. `reserved`: it
    gets nothing until it is free, and then a job that must run alone."""

    handle: ChildHandle
    slots: int
    listener: Listener
    solo: bool = False
    reserved: bool = False
    held: dict[int, Held] = field(default_factory=dict)
    ready: bool = False
    was_ready: bool = False
    bye_at: float | None = None
    ended_at: float | None = None
    leaving: bool = False
    gone: bool = False
    blamed: tuple[int, Outcome] | None = None
    done: int = 0
    ahead: float = AHEAD
    _counted: int = 0
    _busy_for: float = 0.0
    _rate: float = 0.0
    _mean: float = 1.0
    heard_at: float = field(default_factory=time.monotonic)
    spoke_at: float = 0.0
    _transport: asyncio.Transport | None = None

    async def connect(self) -> None:
        self.handle.sock.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: WireReader(to_supervisor, self.hear, self.lost), sock=self.handle.sock
        )
        self._transport = transport

    # -- giving --------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more works it may be given: its free slots, and a few milliseconds of work ahead."""
        if not self.takes_work or self.reserved or self.is_taken:
            return 0
        return self._may_hold() - len(self.held)

    @property
    def is_taken(self) -> bool:
        """By one that must be alone; it was given as the first."""
        return bool(self.held) and next(iter(self.held.values())).alone

    def _may_hold(self) -> int:
        """Its slots and a little work ahead. Jobs so short that they only compute would stand in line for the same
        core: of those it holds what it does in that little time, so that an urgent one finds the line short."""
        # One that runs a single job at a time tells of several together: it is known later how few it has left.
        lasts = 2 * self.ahead if self.slots == 1 and self._mean >= LONG_ENOUGH else self.ahead
        ahead = min(int(self.pace * lasts), AHEAD_AT_MOST)
        if self._rate and self._mean < SHORT:
            return min(self.slots, max(8, int(self._rate * self._mean * 2))) + ahead
        return self.slots + ahead

    @property
    def pace(self) -> float:
        """Jobs a second. Twice what it did lately, where its slots could: one that waits for work shows less."""
        return min(2 * self._rate, self.slots / max(self._mean, 1e-6))

    @property
    def lasts_for(self) -> float:
        """Seconds for which it has work beyond what it is at."""
        ahead = len(self.held) - self.slots
        return ahead / pace if ahead > 0 and (pace := self.pace) else 0.0

    @property
    def takes_work(self) -> bool:
        return self.ready and not self.leaving and not self.gone

    @property
    def is_idle(self) -> bool:
        return self.takes_work and not self.held

    def give(self, leases: Iterable[Lease], *, alone: bool = False) -> None:
        if not self.held:
            self.heard_at = time.monotonic()
        limit_of, works = self.listener.limit_of, []
        for lease in leases:
            self.held[lease.seq] = Held(lease, limit_of(lease), alone=alone)
            works.append(work_of(lease))
        self._send(Run(works))

    def stop(self, seq: int, why: StopReason) -> None:
        self._send(Stop(seq, why))

    def kept(self, said: SaveCheckpoint, *, held: bool) -> None:
        self._send(CheckpointSaved(said.seq, said.token, held))

    def ask_where(self, seq: int) -> None:
        self._send(GetStack(seq))

    def recall(self) -> None:
        """Ask for what it has not begun; and trust it with no work ahead until it is quick again."""
        self._rate, self._mean = 0.0, 1.0
        self._send(Recall())

    def bye(self) -> None:
        self.leaving = True
        self.bye_at = self.bye_at or time.monotonic()
        self._send(Exit())

    def _send(self, message: Any) -> None:
        # Writing to one that is dead would close the socket before its last words are read.
        if self._transport is not None and not self.gone and self.ended_at is None:
            self._transport.write(frame(message))

    def end(self) -> bool:
        return self.handle.end()

    # -- hearing -------------------------------------------------------------------------------------------------------

    def hear(self, message: Any) -> None:
        match message:
            case Report(ended):
                self._heard(ended)
            case Progress(seq):
                if (held := self.held.get(seq)) is not None:
                    held.alive_at = time.monotonic()
                    self.listener.on_progress(held.lease, message)
            case SaveCheckpoint(seq):
                if (held := self.held.get(seq)) is None:
                    self.kept(message, held=False)
                else:
                    held.alive_at = time.monotonic()
                    self.listener.on_keep(self, held.lease, message)
            case Returned(seqs):
                found = [held for seq in seqs if (held := self.held.pop(seq, None)) is not None]
                self.listener.on_returned(self, found)
            case Ready(tasks):
                self.ready = self.was_ready = True
                self.listener.on_ready(self, frozenset(tasks))
            case LogLine(level, line):
                self.spoke_at = time.monotonic()
                _job_log.log(level, "%s", line)
            case Stack(seq, text):
                if (held := self.held.get(seq)) is not None:
                    held.stack = text
            case ListenerThread(thread):
                self.handle.listener = thread
            case SetupFailed(error):
                self.listener.on_broken(self, error)

    def _heard(self, ended: list[Ended]) -> None:
        found = [(held, said) for said in ended if (held := self.held.pop(said.seq, None)) is not None]
        self.done += len(ended)
        now = time.monotonic()
        self._measure(ended, max(now - self.heard_at, 0.0))
        self.heard_at = now
        self.listener.on_ended(self, found)

    def _measure(self, ended: list[Ended], busy_for: float) -> None:
        """How fast it is. Over a window, for two reports may come within microseconds; and a long job is believed at
        once, a short one slowly: what it holds ahead of a long one would wait for it."""
        self._counted += len(ended)
        self._busy_for += busy_for
        if self._busy_for >= WINDOW:
            self._rate += 0.3 * (self._counted / self._busy_for - self._rate)
            self._counted, self._busy_for = 0, 0.0
        if ended:
            mean = sum([said.ran_for for said in ended]) / len(ended)
            self._mean = mean if mean > self._mean else self._mean + 0.3 * (mean - self._mean)

    def lost(self) -> None:
        if not self.gone:
            self.gone = True
            if self._transport is not None:
                self._transport.close()
            self.listener.on_gone(self)

    # -- looking -------------------------------------------------------------------------------------------------------

    def forgive(self, gap: float) -> None:
        """Time in which everything stood still does not count against its jobs."""
        self.heard_at += gap
        begun = self.begun()
        for seq, held in self.held.items():
            if seq in begun:  # one that has not spoken yet lives since it began
                held.alive_at = max(held.alive_at, begun[seq]) + gap
            if held.limit is not None:
                held.limit += gap
            if held.end_at is not None:
                held.end_at += gap

    def begun(self) -> dict[int, float]:
        """What it is at, and since when."""
        return {seq: since for seq, since in self.handle.slot_table.running().items() if seq in self.held}


def work_of(lease: Lease) -> Work:
    spec = lease.spec
    return Work(
        lease.seq,
        spec.id,
        spec.task,
        spec.version,
        spec.args,
        spec.queue,
        lease.priority,
        lease.attempt,
        spec.options.retry.attempts,
        lease.fence,
        lease.checkpoint,
        spec.tags,
        spec.meta or None,
        spec.owner,
        spec.run,
    )


async def buried(body: ChildHandle, patience: float) -> str:
    """Wait for a child that is done for, and say how it ended. One that was let go may take a while for its exit."""
    deadline = time.monotonic() + patience
    while body.exit_description() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    if body.exit_description() is None or not patience:
        body.end()
    with contextlib.suppress(Exception):
        await asyncio.get_running_loop().run_in_executor(None, body.clean_up)
    return body.exit_description() or "it was given up"
