"""A worker as the design describes it, without the parts that need real processes: claim, run, keep alive, settle."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from daybreak.core.errors import StoreError
from daybreak.core.model import (
    Cancelled,
    Done,
    Failed,
    Failure,
    HandedBack,
    Lease,
    Outcome,
    Settlement,
    Suspended,
    TimedOut,
)
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange, Exchanged, Extended, work_topic, worker_topic
from harness.plan import LEASE, LEASE_SECONDS
from harness.process import Process
from harness.wire import Wire

if TYPE_CHECKING:
    from harness.site import Site

QUEUES: Final = ("mail", "bulk", "aged")
LONGEST_IDLE: Final = timedelta(seconds=3)


class Bell:
    """Wakes its one listener; what was rung before it listened counts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung = False
        self._listener: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        if self._listener is not None and not self._listener.done():
            self._listener.set_result(None)

    async def wait(self, seconds: float) -> bool:
        if not self._rung:
            self._listener = self._loop.create_future()
            timer = self._loop.call_later(seconds, _stop_listening, self._listener)
            try:
                await self._listener
            finally:
                timer.cancel()
        rung, self._rung = self._rung, False
        return rung


def _stop_listening(listener: asyncio.Future[None]) -> None:
    if not listener.done():
        listener.set_result(None)


@dataclass(slots=True)
class Held:
    """A lease this worker believes to have. `settlement` stands once its handler ended."""

    lease: Lease
    bell: Bell
    waits: bool = False
    asked: str | None = None
    settlement: Settlement | None = None


class SimWorker:
    def __init__(self, site: Site, process: Process, tasks: frozenset[tuple[str, int]]) -> None:
        self._site = site
        self._process = process
        self._world = site.world_of(process)
        self.name = process.name
        self._tasks = tasks
        self._store = site.wire(process)
        self._held: dict[tuple[int, int], Held] = {}
        self._served = dict.fromkeys(QUEUES, 0)
        self._bell = Bell(site.loop)
        self._requests = Bell(site.loop)
        self._pause = 0.1

    @property
    def store(self) -> Wire:
        return self._store

    async def run(self) -> None:
        self._process.spawn(self._keep())
        self._process.spawn(self._listen([work_topic(queue) for queue in QUEUES], self._bell))
        self._process.spawn(self._listen([worker_topic(self.name)], self._requests))
        while True:
            delay = LONGEST_IDLE
            try:
                delay = await self._turn()
                self._pause = 0.1
            except StoreError:
                delay = timedelta(seconds=self._pause * (0.5 + self._world.chance.random()))
                self._pause = min(self._pause * 2, 5.0)
            await self._bell.wait(delay.total_seconds())
            await self._process.gate()

    async def _listen(self, topics: list[str], bell: Bell) -> None:
        watch = self._store.watch(topics)
        try:
            while True:
                if await watch.wait(timedelta(seconds=30)):
                    bell.ring()
        finally:
            watch.close()

    # -- claim and settle, in one exchange -----------------------------------------------------------------------------

    async def _turn(self) -> timedelta:
        ended = [held for held in self._held.values() if held.settlement is not None]
        free = self._site.plan.slots - (len(self._held) - len(ended))
        if not ended and free < 1:
            return LONGEST_IDLE
        if ended:
            await self._maybe_stop()
        claim = None
        if free > 0:
            claim = Claim(
                worker=self.name, queues=QUEUES, served=tuple(self._served.values()), tasks=self._tasks,
                limit=free, lease_for=LEASE, begins=max(free - 1, 1),
            )  # fmt: skip
        settlements = [held.settlement for held in ended if held.settlement is not None]
        answer = await self._store.exchange(Exchange(settle=settlements, claim=claim))
        self._settled(ended, answer.settled)
        self._start(answer)
        if answer.again and len(self._held) < self._site.plan.slots:
            return timedelta()
        return LONGEST_IDLE if answer.next_in is None else min(LONGEST_IDLE, answer.next_in)

    async def _maybe_stop(self) -> None:
        """The worst moment to be stopped: the work is done and nobody knows."""
        site = self._site
        if site.plan.has("freeze_before_settle") and not site.calm and site.fate.random() < 0.03:
            site.saw("stopped between finishing and settling")
            self._process.freeze(LEASE_SECONDS * 10 ** site.fate.uniform(-1, 1))
            await self._process.gate()

    def _settled(self, ended: list[Held], answers: list[bool]) -> None:
        for held, kept in zip(ended, answers, strict=True):
            self._held.pop((held.lease.seq, held.lease.fence), None)
            if not kept:
                self._site.saw("fenced settlement")

    def _start(self, answer: Exchanged) -> None:
        for lease in answer.leases:
            self._served[lease.spec.queue] += 1
            held = Held(lease, Bell(self._site.loop), waits=lease.lost > 0)
            self._held[lease.seq, lease.fence] = held
            if not held.waits:
                self._process.spawn(self._handle(held) if lease.begun else self._handle_ahead(held))
        self._start_suspect()

    # -- jobs that were at a death before ------------------------------------------------------------------------------

    def _start_suspect(self) -> None:
        """One at a time: of two that run side by side nobody could say which of them did it."""
        suspects = [held for held in self._held.values() if held.lease.lost]
        if suspects and all(held.waits for held in suspects):
            suspects[0].waits = False
            self._process.spawn(self._handle_alone(suspects[0]))

    async def _handle_alone(self, held: Held) -> None:
        """Says so before the work begins: if it dies, nobody else will be there to tell."""
        if await self._say_alone(held):
            self._site.saw("ran alone")
            await self._handle(held)

    async def _handle_ahead(self, held: Held) -> None:
        """What was claimed ahead of time begins when the store knows it."""
        if await self._say(held, alone=None):
            self._site.saw("began later")
            await self._handle(held)

    async def _say_alone(self, held: Held) -> bool:
        return await self._say(held, alone=True)

    async def _say(self, held: Held, *, alone: bool | None) -> bool:
        lease = held.lease
        while (lease.seq, lease.fence) in self._held:
            try:
                [answer] = await self._store.extend(
                    [Beat(seq=lease.seq, fence=lease.fence, lease_for=LEASE, alone=alone, begun=True)]
                )
            except StoreError:
                await self._world.sleep(timedelta(seconds=0.3 * (0.5 + self._world.chance.random())))
                continue
            self._obey(held, answer)
            return answer.held
        return False

    # -- the handler ---------------------------------------------------------------------------------------------------

    async def _handle(self, held: Held) -> None:
        lease, history = held.lease, self._site.history
        history.handler_starts(self.name, lease)
        outcome = await self._work(held)
        if (lease.seq, lease.fence) not in self._held:
            history.note(self.name, "handler dropped", lease.job, lease.fence)
            return
        history.handler_ends(self.name, lease, type(outcome).__name__)
        lease = msgspec.structs.replace(lease, begun=True)
        held.settlement = settle(lease, outcome, chance=self._world.chance.random(), by=self.name)
        self._bell.ring()

    async def _work(self, held: Held) -> Outcome:
        fate = self._site.fate
        seconds = fate.uniform(6.0, 18.0) if "long" in held.lease.spec.tags else fate.uniform(0.05, 3.0) ** 2
        ends_at = self._process.ran + seconds
        deaf = fate.random() < 0.2  # some handlers never look whether they were asked to stop
        while (left := ends_at - self._process.ran) > 1e-6:
            await held.bell.wait(left)
            await self._process.gate()
            if held.asked is not None and not deaf:
                break
        match held.asked:
            case "lost":
                return HandedBack()
            case "cancel" if not deaf:
                self._site.saw("cancel of running")
                return Cancelled()
            case "suspend" if not deaf:
                self._site.saw("suspend of running")
                return Suspended()
        if "deadly" in held.lease.spec.tags:
            await self._die()
        return self._choose(held.lease)

    async def _die(self) -> None:
        self._site.saw("worker killed by its job")
        self._site.history.crash(self.name)
        self._process.kill()
        await asyncio.sleep(0)

    def _choose(self, lease: Lease) -> Outcome:
        roll = self._site.fate.random()
        if self._site.calm and roll > 0.7:
            roll /= 2  # once it is quiet, most work ends well
        if roll < 0.62:
            return Done(f"{lease.job}/{lease.fence}".encode())
        if roll < 0.74:
            return Failed(Failure(message="not now", kinds=("ConnectionError",)))
        if roll < 0.79:
            return Failed(Failure(message="never", kinds=("ValueError",)))
        if roll < 0.82:
            return Failed(Failure(message="who knows", kinds=("Oddity",)))
        if roll < 0.88:
            return TimedOut(timedelta(seconds=5))
        if roll < 0.96:
            self._site.saw("handed back")
            return HandedBack()
        return Suspended("waits for a person")

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        pause = LEASE / 3
        while True:
            await self._requests.wait(pause.total_seconds())
            await self._process.gate()
            pause = LEASE / 3
            held = list(self._held.values())
            if not held:
                continue
            try:
                answers = await self._store.extend([self._beat(each) for each in held])
            except StoreError:
                pause = timedelta(seconds=0.3 * (0.5 + self._world.chance.random()))
                continue
            for each, answer in zip(held, answers, strict=True):
                self._obey(each, answer)

    def _beat(self, held: Held) -> Beat:
        tells = self._site.fate.random() < 0.3
        return Beat(
            seq=held.lease.seq,
            fence=held.lease.fence,
            lease_for=LEASE,
            progress=round(self._site.fate.random(), 3) if tells else None,
        )

    def _obey(self, held: Held, answer: Extended) -> None:
        name = (held.lease.seq, held.lease.fence)
        if not answer.held:
            # Only what still runs is dropped: an ended one may have been settled by the exchange under way.
            if held.settlement is None and name in self._held:
                del self._held[name]
                self._site.saw("lease lost")
                held.asked = "lost"
                held.bell.ring()
                self._start_suspect()
        elif answer.cancel or answer.suspend:
            held.asked = "cancel" if answer.cancel else "suspend"
            held.bell.ring()
