"""The store as one process sees it: the real one, behind a network and a process that may stop at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from daybreak.core.errors import DaybreakError, OutcomeUnknown, StoreUnavailable
from daybreak.core.events import Event
from daybreak.core.model import Job, JobSpec, Lease, Put, Record
from daybreak.store.protocol import (
    Advanced,
    Amend,
    Amended,
    Beat,
    Exchange,
    Exchanged,
    Extended,
    Feed,
    Filter,
    Inserted,
    KnownKey,
    Moved,
    Page,
    Position,
    Purge,
    Purged,
    Query,
    Reap,
    Store,
    Tally,
    Total,
    Traits,
    Usage,
    Watch,
)
from daybreak.worker.supervisor.worker_record import KIND as WORKER_RECORD
from harness.history import Call
from harness.loop import run_now
from harness.network import Passage
from harness.plan import LEASE_SECONDS
from harness.process import OUTSIDE, Process
from harness.world import SimWorld

if TYPE_CHECKING:
    from harness.site import Site

T = TypeVar("T")


class Wire:
    """`world` is the store's: its clock dates what is written."""

    def __init__(self, site: Site, process: Process, store: Store, world: SimWorld) -> None:
        self._site = site
        self._process = process
        self._store = store
        self._world = world

    @property
    def traits(self) -> Traits:
        return self._store.traits

    # -- one call ------------------------------------------------------------------------------------------------------

    async def _call(self, op: str, request: Any, perform: Callable[[], Awaitable[T]], *, reads: bool = False) -> T:
        site, process = self._site, self._process
        call = site.history.invoke(process.name, op, _told(op, request))
        passage = site.network.passage()
        reply: asyncio.Future[T] = site.loop.create_future()
        site.loop.call_later(passage.there, self._arrive, call, passage, perform, reply, reads, context=OUTSIDE)
        try:
            answer = await reply
        except OutcomeUnknown:
            site.history.end(call, "unknown", None)
            raise
        except StoreUnavailable:
            site.history.end(call, "fail", None)
            raise
        site.history.end(call, "ok", None if reads else _told(op, answer))
        return answer

    def _arrive(
        self,
        call: Call,
        passage: Passage,
        perform: Callable[[], Awaitable[T]],
        reply: asyncio.Future[T],
        reads: bool,
    ) -> None:
        """The request reaches the store; one that is a server goes on even if whoever sent it is dead by now."""
        site, network = self._site, self._site.network
        now = site.loop.time()
        if self._store.traits.shared and not self._process.alive:
            return  # its store ran inside of it
        if network.stalled_until > now and call.op != "reap":
            # See `faults.stall` for why a reap is not among what hangs.
            later = network.stalled_until - now + network.jitter()
            site.loop.call_later(later, self._arrive, call, passage, perform, reply, reads, context=OUTSIDE)
            return
        if passage.lost == "request" or max(network.silent_until, network.stalled_until) > now:
            site.saw("request lost" if passage.lost else "outage")
            self._deliver(passage, reply, StoreUnavailable("simulated: the store cannot be reached"))
            return
        answer: Any
        try:
            answer = run_now(perform())
        except DaybreakError as trouble:
            answer = trouble
        if not reads:
            commit = site.history.commit(call, _told(call.op, answer), site.new_events(), self._world.wall())
            if site.plan.limits:
                commit.used = {usage.name: usage.used for usage in run_now(self._store.usage())}
        if passage.lost == "reply":
            site.saw("reply lost")
            site.saw(f"unknown {call.op}")
            answer = OutcomeUnknown("simulated: the reply was lost")
        self._deliver(passage, reply, answer)

    def _deliver(self, passage: Passage, reply: asyncio.Future[Any], answer: Any) -> None:
        self._site.loop.call_later(passage.back, _answer, reply, answer, context=OUTSIDE)

    # -- the seam ------------------------------------------------------------------------------------------------------

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        return await self._call("insert", list(specs), lambda: self._store.insert(specs))

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        return await self._call("exchange", exchange, lambda: self._store.exchange(exchange))

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        return await self._call("extend", list(beats), lambda: self._store.extend(beats))

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        found = await self._call("reap", reap, lambda: self._store.reap(reap))
        if found and not self._site.calm:
            await self._maybe_stop()
        return found

    async def _maybe_stop(self) -> None:
        """The worst moments of a reaper: it has taken over, and dies or is stopped before it settles."""
        site, process, roll = self._site, self._process, self._site.fate.random()
        if site.plan.has("reaper_crash") and roll < 0.25:
            site.saw("reaper crashed before it settled")
            site.history.crash(process.name)
            process.kill()
            await asyncio.sleep(0)
        elif site.plan.has("reaper_freeze") and roll > 0.75:
            site.saw("reaper stopped before it settled")
            site.freeze(process, LEASE_SECONDS * site.fate.uniform(0.5, 4.0))
            await asyncio.sleep(0)

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        return await self._call("advance", limit, lambda: self._store.advance(limit))

    async def amend(self, amend: Amend, *, now: datetime | None = None) -> Amended:
        return await self._call("amend", amend, lambda: self._store.amend(amend))

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        return await self._call("adopt", moved, lambda: self._store.adopt(moved, by=by))

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        return await self._call("purge", purge, lambda: self._store.purge(purge))

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        return await self._call("put", list(puts), lambda: self._store.put(puts, now=now))

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        return await self._read("get", jobs, lambda: self._store.get(jobs))

    async def find(self, query: Query) -> Page:
        return await self._read("find", query, lambda: self._store.find(query))

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        return await self._read("count", where, lambda: self._store.count(where))

    async def totals(self, queue: str | None = None) -> list[Total]:
        return await self._read("totals", queue, lambda: self._store.totals(queue))

    async def position(self, job: str) -> Position | None:
        return await self._read("position", job, lambda: self._store.position(job))

    async def usage(self, name: str | None = None) -> list[Usage]:
        return await self._read("usage", name, lambda: self._store.usage(name))

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        return await self._read("events", after, lambda: self._store.events(after, limit))

    async def history(self, job: str) -> list[Event]:
        return await self._read("history", job, lambda: self._store.history(job))

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        return await self._read("known_keys", keys, lambda: self._store.known_keys(keys, now=now))

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        return await self._read("pack", jobs, lambda: self._store.pack(jobs))

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        return await self._read("records", (kind, name), lambda: self._store.records(kind, name))

    async def _read(self, op: str, request: Any, perform: Callable[[], Awaitable[T]]) -> T:
        return await self._call(op, request, perform, reads=True)

    def watch(self, topics: Iterable[str]) -> Watch:
        return WireWatch(self._process, None if self._site.plan.deaf else self._store.watch(topics))

    async def open(self) -> Self:
        return self

    async def close(self) -> None:
        pass


class WireWatch:
    """A watch that hears nothing while its process is frozen; a deaf one only lets time pass."""

    def __init__(self, process: Process, watch: Watch | None) -> None:
        self._process = process
        self._watch = watch

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109 - part of the seam
        if self._watch is None:
            await asyncio.sleep(timeout.total_seconds())
            woken = False
        else:
            woken = await self._watch.wait(timeout)
        return woken

    def on_wake(self, call: Callable[[], None]) -> None:
        if self._watch is not None:
            self._watch.on_wake(lambda: self._process.call_soon(call))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


def _told(op: str, what: Any) -> Any:
    """A request or answer as the history keeps it: the record of a worker tells of the machine that simulates, and the
    batch tasks of a claim, which never change, have keys that cannot be written as JSON."""
    if isinstance(what, Exchange) and what.claim is not None and what.claim.batches:
        return msgspec.structs.replace(what, claim=msgspec.structs.replace(what.claim, batches={}))
    if op != "put" or not isinstance(what, list):
        return what
    return [
        msgspec.structs.replace(one, value=b"") if one is not None and one.kind == WORKER_RECORD else one
        for one in what
    ]


def _answer(reply: asyncio.Future[Any], answer: Any) -> None:
    if reply.done():  # nobody waits: its process was killed
        return
    if isinstance(answer, DaybreakError):
        reply.set_exception(answer)
    else:
        reply.set_result(answer)
