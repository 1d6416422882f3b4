"""One child as the supervisor sees it: what it holds, how fast it is, and what it said."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from daybreak.model import Lease, Outcome
from daybreak.policy.timeouts import limit_for
from daybreak.worker.isolation import Body
from daybreak.worker.wire import (
    Broken,
    Bye,
    Ended,
    Frames,
    Keep,
    Kept,
    Progress,
    Ready,
    Recall,
    Report,
    Returned,
    Run,
    Stop,
    Why,
    Work,
    frame,
    to_supervisor,
)

AHEAD: Final = 0.004  # seconds of measured work that a child may hold beyond its slots
AHEAD_AT_MOST: Final = 256


@dataclass(slots=True)
class Held:
    """A lease in a child's hands. Times are of the loop's clock."""

    lease: Lease
    n: int
    limit: float | None
    began_at: float | None = None
    asked: Why | None = None
    end_at: float | None = None
    alone: bool = False


class Listener(Protocol):
    """Who a child reports to."""

    def on_ready(self, child: Child, tasks: frozenset[tuple[str, int]]) -> None: ...

    def on_ended(self, child: Child, ended: list[tuple[Held, Ended]]) -> None: ...

    def on_returned(self, child: Child, leases: list[Held]) -> None: ...

    def on_progress(self, lease: Lease, said: Progress) -> None: ...

    def on_keep(self, child: Child, lease: Lease, said: Keep) -> None: ...

    def on_broken(self, child: Child, trouble: str) -> None: ...

    def on_gone(self, child: Child) -> None: ...


@dataclass(eq=False)
class Child:
    """`blamed`: it is being ended for the sake of this job, which ends so; its neighbours are innocent."""

    body: Body
    slots: int
    listener: Listener
    solo: bool = False
    held: dict[int, Held] = field(default_factory=dict)
    ready: bool = False
    leaving: bool = False
    gone: bool = False
    blamed: tuple[int, Outcome] | None = None
    done: int = 0
    started_at: float = field(default_factory=time.monotonic)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _rate: float = 0.0
    _busy_since: float = 0.0
    _transport: asyncio.Transport | None = None

    async def connect(self) -> None:
        self.body.sock.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: _Ear(self), sock=self.body.sock)
        self._transport = transport

    # -- giving --------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more works it may be given: its free slots, and a few milliseconds of work ahead."""
        if not self.ready or self.leaving or self.gone:
            return 0
        if any_alone(self.held.values()):
            return 0
        return self.slots + min(int(self._rate * AHEAD), AHEAD_AT_MOST) - len(self.held)

    @property
    def is_idle(self) -> bool:
        return self.ready and not self.leaving and not self.gone and not self.held

    def give(self, leases: Iterable[Lease], *, alone: bool = False) -> None:
        works = []
        if not self.held:
            self._busy_since = time.monotonic()
        for lease in leases:
            held = Held(lease, next(self._numbers), _limit(lease), alone=alone)
            self.held[lease.seq] = held
            works.append(_work(held))
        self._send(Run(works))

    def stop(self, seq: int, why: Why) -> None:
        self._send(Stop(seq, why))

    def kept(self, said: Keep, *, held: bool) -> None:
        self._send(Kept(said.seq, said.token, held))

    def recall(self) -> None:
        """Ask for what it has not begun; and trust it with no work ahead until it is quick again."""
        self._rate = 0.0
        self._send(Recall())

    def bye(self) -> None:
        self.leaving = True
        self._send(Bye())

    def _send(self, message: Any) -> None:
        if self._transport is not None and not self.gone:
            self._transport.write(frame(message))

    def end(self) -> bool:
        return self.body.end()

    # -- hearing -------------------------------------------------------------------------------------------------------

    def hear(self, message: Any) -> None:
        match message:
            case Report(ended):
                self._heard(ended)
            case Progress(seq):
                if (held := self.held.get(seq)) is not None:
                    self.listener.on_progress(held.lease, message)
            case Keep(seq):
                if (held := self.held.get(seq)) is None:
                    self.kept(message, held=False)
                else:
                    self.listener.on_keep(self, held.lease, message)
            case Returned(seqs):
                found = [held for seq in seqs if (held := self.held.pop(seq, None)) is not None]
                self.listener.on_returned(self, found)
            case Ready(tasks):
                self.ready = True
                self.listener.on_ready(self, frozenset(tasks))
            case Broken(trouble):
                self.listener.on_broken(self, trouble)

    def _heard(self, ended: list[Ended]) -> None:
        found = [(held, said) for said in ended if (held := self.held.pop(said.seq, None)) is not None]
        self.done += len(ended)
        now = time.monotonic()
        rate = len(ended) / max(now - self._busy_since, 1e-6)
        self._rate += 0.3 * (rate - self._rate)
        self._busy_since = now
        self.listener.on_ended(self, found)

    def lost(self) -> None:
        if not self.gone:
            self.gone = True
            if self._transport is not None:
                self._transport.close()
            self.listener.on_gone(self)

    # -- looking -------------------------------------------------------------------------------------------------------

    def begun(self) -> list[Held]:
        """What it is at, as far as can be told: everything up to the last number it began."""
        _, _, begun = self.body.cell.read()
        return [held for held in self.held.values() if held.n <= begun]


def any_alone(held: Iterable[Held]) -> bool:
    return any(one.alone for one in held)


def _limit(lease: Lease) -> float | None:
    limit = limit_for(lease.spec.options, lease.timeouts)
    return None if limit is None else limit.total_seconds()


def _work(held: Held) -> Work:
    lease, spec = held.lease, held.lease.spec
    return Work(
        held.n,
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
        held.limit,
        lease.checkpoint,
        spec.tags,
        spec.meta or None,
        spec.owner,
        spec.run,
    )


class _Ear(asyncio.Protocol):
    def __init__(self, child: Child) -> None:
        self._child = child
        self._frames = Frames(to_supervisor)

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            self._child.hear(message)

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._child.lost()


async def buried(body: Body) -> str:
    """Wait for a child that is done for, and say how it ended."""
    body.end()
    with contextlib.suppress(Exception):
        await asyncio.get_running_loop().run_in_executor(None, body.bury)
    return body.how_it_ended() or "it was given up"
