"""Known ways to get it wrong, each a small variant of the real thing. The simulation must notice every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from harness import Parts
from harness.plan import LEASE
from harness.worker import SimWorker

from daybreak.client.client import Client
from daybreak.core.errors import OutcomeUnknown
from daybreak.core.events import Event
from daybreak.core.model import Lost, State
from daybreak.core.units import span
from daybreak.policy.settle import settle
from daybreak.services.reaper import Reaper
from daybreak.store.protocol import Beat, Feed
from daybreak.stores.memory import MemoryStore
from daybreak.stores.memory.ledger import Ledger, Now
from daybreak.stores.memory.ready import Ready

replace = msgspec.structs.replace


@dataclass(frozen=True)
class Planted:
    name: str
    caught_by: set[str]
    within: int
    store: Callable[..., MemoryStore] = MemoryStore
    parts: Parts = field(default_factory=Parts)


def with_ledger(ledger: type[Ledger]) -> Callable[..., MemoryStore]:
    def build(world):
        store = MemoryStore(world)
        store._ledger = ledger()
        return store

    return build


# -- settle ------------------------------------------------------------------------------------------------------------


class NoFence(Ledger):
    """settle looks at the job's id and state only."""

    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        return super().settle(replace(settlement, fence=entry.fence if entry else 0), now)


class RescueById(Ledger):
    """River #1302: whoever rescues updates by id alone, also a job that has ended meanwhile."""

    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        lost = settlement.failure is not None and settlement.failure.kinds == ("Lost",)
        if entry and lost and entry.state is not State.RUNNING:
            settlement = replace(settlement, fence=entry.fence)
            self._write_anyway(entry, settlement, now)
            return True
        return super().settle(replace(settlement, fence=entry.fence) if entry and lost else settlement, now)

    def _write_anyway(self, entry, settlement, now):
        if entry.finished is not None:
            self.unfinished[entry.spec.queue] += 1
            entry.finished = None
        self._write(entry, settlement, now)


class NoStateGuard(Ledger):
    """A settlement that is repeated after a lost reply is written a second time."""

    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        if entry and entry.fence == settlement.fence and entry.state is not State.RUNNING:
            self._write(entry, settlement, now)
            return True
        return super().settle(settlement, now)


class ChargesTwice(Ledger):
    """A lost lease costs two attempts: one at the claim, one at the rescue."""

    def settle(self, settlement, now):
        if settlement.failure is not None and settlement.failure.kinds == ("Lost",):
            settlement = replace(settlement, attempt=settlement.attempt + 1)
        return super().settle(settlement, now)


class ChargesHandBack(Ledger):
    def settle(self, settlement, now):
        if settlement.state is State.QUEUED and settlement.failure is None:
            settlement = replace(settlement, attempt=settlement.attempt + 1)
        return super().settle(settlement, now)


class ForgetsCrashed(Ledger):
    """Sidekiq's brpop: what a dead worker held is nowhere."""

    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        if entry and entry.fence == settlement.fence and entry.reaped:
            self.drop(entry, now, keys_for=None)
            return True
        return super().settle(settlement, now)


class CompletesTheCancelled(Ledger):
    """Whoever asked for a cancel was told `requested`, and the job completes or runs again all the same."""

    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        if entry and entry.fence == settlement.fence:
            entry.cancelling = None
        return super().settle(settlement, now)


# -- leases ------------------------------------------------------------------------------------------------------------


class FenceStays(Ledger):
    """The reaper takes a lease over under the old fence."""

    def reap(self, reap, now):
        before = {entry.seq: entry.fence for entry in self.running.values()}
        taken = super().reap(reap, now)
        for entry in taken:
            entry.fence = before[entry.seq]
        return taken


class ReapsUnwatched(Ledger):
    """The store takes over whatever ran out, however short the reaper's watch was."""

    def reap(self, reap, now):
        return super().reap(replace(reap, watched_for=timedelta(days=1)), now)


class WallClockLeases(Ledger):
    """Leases are judged by a clock that people set."""

    def claim(self, claim, now):
        return super().claim(claim, Now(now.wall, now.wall))

    def extend(self, beat, now):
        return super().extend(beat, Now(now.wall, now.wall))

    def reap(self, reap, now):
        return super().reap(reap, Now(now.wall, now.wall))


class UnfencedExtend(Ledger):
    """A zombie's heartbeat keeps alive a lease that is another's."""

    def extend(self, beat, now):
        entry = self.jobs.get(beat.seq)
        return super().extend(replace(beat, fence=entry.fence) if entry else beat, now)


class AliveByName(Ledger):
    """Oban #862: a worker counts as alive while its name is seen; with names that come back, its orphans stay."""

    def claim(self, claim, now):
        self.records["seen", claim.worker] = now.steady
        return super().claim(claim, now)

    def reap(self, reap, now):
        away = {}
        for seq, entry in list(self.running.items()):
            if now.steady - self.records.get(("seen", entry.worker), 0) < entry.term:
                away[seq] = self.running.pop(seq)
        taken = super().reap(reap, now)
        self.running.update(away)
        return taken


class ForgetfulReap(Ledger):
    """A request to cancel does not survive the takeover."""

    def reap(self, reap, now):
        taken = super().reap(reap, now)
        for entry in taken:
            entry.cancelling = None
        return taken


class AloneForGood(Ledger):
    """Whoever ran alone once is taken to do so for ever."""

    def _leave_lease(self, entry):
        alone = entry.alone
        super()._leave_lease(entry)
        entry.alone = alone


class TakeOverForgetsAlone(Ledger):
    def reap(self, reap, now):
        taken = super().reap(reap, now)
        for entry in taken:
            entry.alone = False
        return taken


class ChargedWithoutBeginning(Ledger):
    """Whoever takes a lease over takes it for begun."""

    def reap(self, reap, now):
        taken = super().reap(reap, now)
        for entry in taken:
            entry.ahead = False
        return taken


class HeartbeatForgetsAlone(Ledger):
    """A heartbeat writes what it does not say."""

    def extend(self, beat, now):
        return super().extend(replace(beat, alone=bool(beat.alone)), now)


# -- order and limits --------------------------------------------------------------------------------------------------


class LastFirst(Ready):
    def head(self, queue, tasks):
        heads = [
            max(rank for rank in ranks if rank.band == ranks.first.band)
            for (name, task, version), ranks in self._lanes.items()
            if name == queue and (tasks is None or (task, version) in tasks)
        ]
        return min(heads, default=None)


class NotFifo(Ledger):
    def __init__(self):
        super().__init__(ready=LastFirst())


class NoPriority(Ready):
    def head(self, queue, tasks):
        ranks = [
            rank
            for (name, task, version), lane in self._lanes.items()
            for rank in lane
            if name == queue and (tasks is None or (task, version) in tasks)
        ]
        return min(ranks, key=lambda rank: rank.seq, default=None)


class IgnoresPriority(Ledger):
    def __init__(self):
        super().__init__(ready=NoPriority())


class KeepsOldRank(Ledger):
    """What ran while the discipline changed comes back with the rank of the old one. (A real one, found here.)"""

    def _update_rank(self, entry):
        if entry.state in {State.QUEUED, State.SCHEDULED, State.SUSPENDED} and entry.n and not self._amends:
            return
        super()._update_rank(entry)

    _amends = False

    def _rerank(self, entry, priority, now, *, by):
        type(self)._amends = True
        try:
            super()._rerank(entry, priority, now, by=by)
        finally:
            type(self)._amends = False


class NeverAges(Ledger):
    """A queue that should age is served by priority alone."""

    def _accept(self, spec, settings, now):
        return super()._accept(spec, replace(settings, discipline="fifo"), now)


class NoMaxRunning(Ledger):
    def _room(self, queue):
        return 0 if self.settings(queue).paused else float("inf")


class IgnoresPause(Ledger):
    def _room(self, queue):
        limit = self.settings(queue).max_running
        running = sum(1 for entry in self.running.values() if entry.spec.queue == queue)
        return float("inf") if limit is None else limit - running


class NoCapacity(Ledger):
    def _accept(self, spec, settings, now):
        return super()._accept(spec, settings, now)

    def insert(self, spec, now):
        before, self.unfinished = self.unfinished, type(self.unfinished)()
        try:
            return super().insert(spec, now)
        finally:
            before.update(self.unfinished)
            self.unfinished = before


class StartsTheCancelled(Ledger):
    """A cancelled job stays in the list of what can be claimed."""

    def _finish(self, entry, state, now, **how):
        queued = entry.state is State.QUEUED
        super()._finish(entry, state, now, **how)
        if queued and state is State.CANCELLED:
            self.ready.add(entry.lane, entry.rank)


class StartsEarly(Ledger):
    """A delayed job is taken up as soon as it is within two seconds of its time."""

    def promote(self, limit, now):
        return super().promote(limit, Now(now.wall, now.steady + 2_000_000))


class ExpiresLate(Ledger):
    """A claim does not look whether the job has expired."""

    @staticmethod
    def _is_overdue(entry, now):
        return False


# -- accepting ---------------------------------------------------------------------------------------------------------


class ForgetsKeys(Ledger):
    """A key is forgotten with its job."""

    def drop(self, entry, now, **how):
        super().drop(entry, now, **how)
        self.keys.pop(entry.spec.key, None)


class KeyWithoutContent(Ledger):
    """Other content under a known key is taken for the same."""

    def insert(self, spec, now):
        known = self.keys.get(spec.key)
        return super().insert(replace(spec, digest=known.digest) if known else spec, now)


class NewIdEachTime(Client):
    """The client makes a new id when it does not know whether the first was heard."""

    async def _insert(self, specs, within):
        try:
            return await self.store.insert(specs)
        except OutcomeUnknown:
            return await super()._insert([replace(spec, id=self._new_id()) for spec in specs], within)


# -- events and counts -------------------------------------------------------------------------------------------------


class NumberGap(Ledger):
    """A takeover uses up an event number too many."""

    def _record_event(self, entry, event, *more):
        skips = event.kind == "lease_expired"
        super()._record_event(entry, replace(event, n=event.n + 1) if skips else event, *more)


class LostEvent(Ledger):
    """Now and then an event is in the job's history and not in the feed."""

    def _publish(self, event: Event, *more):
        if event.kind != "reprioritised":
            super()._publish(event, *more)


class SilentRelease(Ledger):
    """A hand-back changes the job without an event."""

    def _record_event(self, entry, event, *more):
        if event.kind != "released":
            super()._record_event(entry, event, *more)


class SkippingFeed(MemoryStore):
    """The last event of a full page is on neither page."""

    async def events(self, after=None, limit=1000):
        feed = await super().events(after, min(limit, 5))
        if len(feed.events) == 5:
            return Feed(feed.events[:-1], feed.cursor, feed.cursors[:-1])
        return feed


class Miscounts(MemoryStore):
    """Suspended jobs are counted as queued."""

    async def count(self, *where: Any):
        return [
            replace(tally, state=State.QUEUED) if tally.state is State.SUSPENDED else tally
            for tally in await super().count(*where)
        ]


# -- services and workers ----------------------------------------------------------------------------------------------


class Hasty(Reaper):
    """Counts the time of an outage as time watched."""

    def _watched_for(self, now):
        return timedelta(days=1)


class CountsHungCalls(Reaper):
    """The watch begins with the question. (A real one, found here.)"""

    def _watched_for(self, now):
        if self._watching_since is None or self._had_gap(now):
            self._watching_since = now
        return timedelta(microseconds=now - self._watching_since)

    def _record_contact(self, asked_at):
        self._last_contact = self._world.steady()


class Overlooks(Reaper):
    """Takes a silence of three of its pauses, each grown to twice its length, for the store's usual pace."""

    def _had_gap(self, now):
        return now - self._last_contact > span(6 * self._every)


class NeverSettles(Reaper):
    """Takes over and leaves it at that."""

    async def tick(self):
        store, self._store = self._store, _OnlyReaps(self._store)
        try:
            return await super().tick()
        finally:
            self._store = store


class _OnlyReaps:
    def __init__(self, store):
        self.reap = store.reap

    async def exchange(self, exchange):
        return None


class BlamesAnyone(Reaper):
    """Who was there at a death is to blame for it."""

    def _settlement_of(self, lease):
        return settle(lease, Lost(alone=True), chance=0.5, by=self._name)


class BlamesNobody(Reaper):
    """A job that kills every worker runs for ever."""

    def _settlement_of(self, lease):
        return settle(lease, Lost(), chance=0.5, by=self._name)


class SettlesAfterLoss(SimWorker):
    """Runs on when its heartbeat was refused, and starts the handler again under the same lease."""

    def _obey(self, held, answer):
        if not answer.held and held.settlement is None:
            self._process.spawn(self._handle(held))
            return
        super()._obey(held, answer)


class BeginsUnsaid(SimWorker):
    """What was claimed ahead of time runs before the store knows it."""

    async def _handle_ahead(self, held):
        await self._handle(held)


class NeverAlone(SimWorker):
    """Runs what was at a death before as any other."""

    async def _say_alone(self, held):
        return True


class SaysItTooLate(SimWorker):
    """The work has begun when it is said."""

    async def _handle_alone(self, held):
        self._process.spawn(self._handle(held))
        await self._say_alone(held)


class AllAlone(SimWorker):
    """Several at once, and says of each that it runs alone."""

    def _start_suspect(self):
        for held in self._held.values():
            if held.waits:
                held.waits = False
                self._process.spawn(self._handle_alone(held))


class AnyoneAlone(SimWorker):
    """Every heartbeat of every job says that it runs alone."""

    def _beat(self, held):
        return Beat(seq=held.lease.seq, fence=held.lease.fence, lease_for=LEASE, alone=True)


PLANTED = [
    Planted("settle without a fence", {"I4", "I6"}, 20, with_ledger(NoFence)),
    Planted("rescue by id alone", {"I6", "I7", "I8"}, 150, with_ledger(RescueById)),
    Planted("settle without a state guard", {"I4", "I8"}, 60, with_ledger(NoStateGuard)),
    Planted("a lost lease charged twice", {"I14"}, 10, with_ledger(ChargesTwice)),
    Planted("a hand-back charged", {"I14"}, 10, with_ledger(ChargesHandBack)),
    Planted("crashed jobs forgotten", {"I1"}, 10, with_ledger(ForgetsCrashed)),
    Planted("a cancelled job completes", {"I16"}, 20, with_ledger(CompletesTheCancelled)),
    Planted("reap keeps the fence", {"I5", "I6", "I9"}, 20, with_ledger(FenceStays)),
    Planted("store ignores watched_for", {"P8"}, 20, with_ledger(ReapsUnwatched)),
    Planted("leases by the wall clock", {"P8", "I20", "I1"}, 30, with_ledger(WallClockLeases)),
    Planted("heartbeat without a fence", {"I6"}, 30, with_ledger(UnfencedExtend)),
    Planted(
        "worker alive by a name that comes back", {"I20", "I1"}, 60, with_ledger(AliveByName), Parts(reuse_names=True)
    ),
    Planted("a cancel request lost in a takeover", {"I16", "I9"}, 60, with_ledger(ForgetfulReap)),
    Planted("alone for good", {"I15"}, 10, with_ledger(AloneForGood)),
    Planted("alone forgotten in a takeover", {"I15"}, 20, with_ledger(TakeOverForgetsAlone)),
    Planted("alone forgotten by a heartbeat", {"I15"}, 20, with_ledger(HeartbeatForgetsAlone)),
    Planted("charged without beginning", {"I14"}, 20, with_ledger(ChargedWithoutBeginning)),
    Planted("begun said too late", {"I14"}, 10, parts=Parts(worker=BeginsUnsaid)),
    Planted("last in, first out", {"I10"}, 10, with_ledger(NotFifo)),
    Planted("priority ignored", {"I10"}, 10, with_ledger(IgnoresPriority)),
    Planted("old rank kept over a new discipline", {"I10"}, 150, with_ledger(KeepsOldRank)),
    Planted("an aging queue that starves", {"I11"}, 30, with_ledger(NeverAges)),
    Planted("max_running not looked at", {"I12"}, 20, with_ledger(NoMaxRunning)),
    Planted("pause not looked at", {"I12"}, 20, with_ledger(IgnoresPause)),
    Planted("capacity not looked at", {"I12"}, 30, with_ledger(NoCapacity)),
    Planted("a cancelled job starts", {"I7", "I8", "I16"}, 30, with_ledger(StartsTheCancelled)),
    Planted("delayed jobs start early", {"I17"}, 10, with_ledger(StartsEarly)),
    Planted("expired jobs start", {"I17"}, 30, with_ledger(ExpiresLate)),
    Planted("keys forgotten with their job", {"I3"}, 30, with_ledger(ForgetsKeys)),
    Planted("key with other content accepted", {"I3"}, 20, with_ledger(KeyWithoutContent)),
    Planted("a new id on every retry", {"I2", "I1", "I3"}, 30, parts=Parts(client=NewIdEachTime)),
    Planted("a gap in the event numbers", {"I9"}, 10, with_ledger(NumberGap)),
    Planted("an event missing from the feed", {"I9"}, 20, with_ledger(LostEvent)),
    Planted("a change without an event", {"I8", "I9"}, 10, with_ledger(SilentRelease)),
    Planted("the feed skips", {"I9"}, 20, SkippingFeed),
    Planted("counts that are no recount", {"I24"}, 10, Miscounts),
    Planted("reaper counts outages as watched", {"P8"}, 20, parts=Parts(reaper=Hasty)),
    Planted("reaper counts hung calls as watched", {"P8"}, 150, parts=Parts(reaper=CountsHungCalls)),
    Planted("reaper overlooks a silence", {"P8"}, 30, parts=Parts(reaper=Overlooks)),
    Planted("reaper never settles", {"I1", "I20"}, 10, parts=Parts(reaper=NeverSettles)),
    Planted("reaper blames anyone", {"I15"}, 20, parts=Parts(reaper=BlamesAnyone)),
    Planted("reaper blames nobody", {"I1", "I14"}, 20, parts=Parts(reaper=BlamesNobody)),
    Planted("a lost lease runs again", {"I4"}, 150, parts=Parts(worker=SettlesAfterLoss)),
    Planted("suspects run as any other", {"I15", "I1"}, 10, parts=Parts(worker=NeverAlone)),
    Planted("alone said too late", {"I15"}, 10, parts=Parts(worker=SaysItTooLate)),
    Planted("several alone at once", {"I15"}, 20, parts=Parts(worker=AllAlone)),
    Planted("everyone alone", {"I15"}, 10, parts=Parts(worker=AnyoneAlone)),
]
