"""Bugs in how a store is asked."""

from __future__ import annotations

from msgspec.structs import replace

from daybreak.core.errors import CursorExpired
from daybreak.core.model import State
from daybreak.core.units import moment
from daybreak.store.protocol import Exchange, Feed, Filter, Page, Verdict
from daybreak.stores.memory import MemoryStore
from daybreak.stores.wakeups import HubWatch


class OneBadItemSinksTheBatch(MemoryStore):
    async def insert(self, specs, *, now=None):
        answers = []
        for spec in specs:
            answers += await super().insert([spec], now=now)
            if answers[-1].verdict is Verdict.CONFLICT:
                raise ValueError(f"job {spec.id} is in conflict")
        return answers


class LeasesByWallClock(MemoryStore):
    def _times(self, now):
        wall, _ = super()._times(now)
        return wall, wall


class ClockJumpPurges(MemoryStore):
    async def purge(self, purge, *, now=None):
        return await super().purge(purge, now=now or moment(self._times(None)[0]))


class RunAtBySteadyClock(MemoryStore):
    def _times(self, now):
        _, steady = super()._times(now)
        return steady, steady


class TallyDrifts(MemoryStore):
    """Jobs asked to cancel are counted as cancelled already."""

    async def count(self, where=Filter()):  # noqa: B008
        tallies = await super().count(where)
        drift = any(row.state is State.CANCELLED and row.fence for row in self._book.jobs.values())
        return [*tallies[1:], replace(tallies[0], n=tallies[0].n + 1)] if drift else tallies


class FinishedJobForgetsItsWorker(MemoryStore):
    async def find(self, query):
        page = await super().find(query)
        return Page([replace(job, worker=None) if job.is_final else job for job in page.jobs], page.cursor)


class UpdatedWhenItWasSubmitted(MemoryStore):
    async def find(self, query):
        page = await super().find(query)
        return Page([replace(job, updated_at=job.created_at) for job in page.jobs], page.cursor)


class ProgressIsAnUpdate(MemoryStore):
    async def extend(self, beats, *, now=None):
        answers = await super().extend(beats, now=now)
        for beat in beats:
            if beat.progress is not None:
                row = self._book.jobs[beat.seq]
                *earlier, latest = row.events()
                row.history = (*earlier, replace(latest, at=now))
        return answers


class ReaperIsTheLastWorker(MemoryStore):
    """Who changed a finished job last is taken for its worker."""

    async def find(self, query):
        page = await super().find(query)
        histories = [await self.history(job.id) for job in page.jobs]
        jobs = [replace(job, worker=told[-1].by) for job, told in zip(page.jobs, histories, strict=True)]
        return Page(jobs, page.cursor)


class CursorRepeatsAnEvent(MemoryStore):
    async def events(self, after=None, limit=1000):
        feed = await super().events(after, limit)
        return Feed(feed.events, str(int(feed.cursor) - 1)) if len(feed.events) == limit and limit > 1 else feed


class RunAndOwnerOfTheFirst(MemoryStore):
    """Events of one batch share their row, and with it the names of the first job."""

    async def insert(self, specs, *, now=None):
        first = specs[0]
        shared = [replace(spec, run=first.run, owner=first.owner) for spec in specs]
        return await super().insert(shared, now=now)


class EveryEventHasTheCursorOfItsPage(MemoryStore):
    """Who stops inside a page misses the rest of it."""

    async def events(self, after=None, limit=1000):
        feed = await super().events(after, limit)
        return Feed(feed.events, feed.cursor, [feed.cursor] * len(feed.events))


class PurgedEventsAreAGap(MemoryStore):
    async def events(self, after=None, limit=1000):
        try:
            return await super().events(after, limit)
        except CursorExpired:
            return await super().events(None, limit)


class BulkFollowsArrivals(MemoryStore):
    """Each chunk takes whatever matches when it comes to it."""

    async def amend(self, amend, *, now=None):
        return await super().amend(replace(amend, cursor=None), now=now)


class HalfAnExchange(MemoryStore):
    """The parts are written one by one."""

    async def exchange(self, exchange, *, now=None):
        await super().exchange(Exchange(settle=exchange.settle), now=now)
        return await super().exchange(replace(exchange, settle=()), now=now)


class HalfABatchIsAdopted(MemoryStore):
    async def adopt(self, moved, *, by, now=None):
        return [
            answer for one in moved for answer in await super(HalfABatchIsAdopted, self).adopt([one], by=by, now=now)
        ]


class PurgesTooEarly(MemoryStore):
    async def purge(self, purge, *, now=None):
        for row in self._book.jobs.values():
            row.purge_at = row.purge_at and row.created
        return await super().purge(purge, now=now)


class PagesByOffset(MemoryStore):
    async def find(self, query):
        start = int(query.cursor or 0)
        page = await super().find(replace(query, cursor=None, limit=start + query.limit))
        return Page(page.jobs[start:], None if page.cursor is None else str(start + query.limit))


class PagesOverlap(MemoryStore):
    """The order of pages is not total: equals may stand on either side of a page's end."""

    async def find(self, query):
        page = await super().find(query)
        if page.cursor is None or ":" not in page.cursor:
            return page
        return Page(page.jobs, page.cursor.rsplit(":", 1)[0] + ":0")


class WakeUpIsLost(MemoryStore):
    def watch(self, topics):
        watch = super().watch(topics)
        watch.__class__ = ForgetfulWatch
        return watch


class ForgetfulWatch(HubWatch):
    async def wait(self, timeout):  # noqa: ASYNC109
        self._is_woken = False
        return await super().wait(min(timeout, timeout / 100))


class WakeUpIsNotCalledOut(MemoryStore):
    def watch(self, topics):
        watch = super().watch(topics)
        watch.on_wake = lambda call: None
        return watch


class ChangedJobIsDroppedAsMoved(MemoryStore):
    async def purge(self, purge, *, now=None):
        jobs = await self.get([job for job, _ in purge.moved])
        moved = tuple((job.id, job.revision) for job in jobs if job is not None)
        return await super().purge(replace(purge, moved=moved), now=now)


class RepeatedClaimTakesMore(MemoryStore):
    async def exchange(self, exchange, *, now=None):
        return await super().exchange(other_claim(exchange, repeats=False), now=now)


class OtherCalls(MemoryStore):
    """A repeated claim is answered with leases that another claim took."""

    def is_own(self, row, worker):
        raise NotImplementedError

    def _begin(self, wall, steady):
        tx = super()._begin(wall, steady)
        tx.leases_of_call = lambda worker, call: self.take_over(tx, worker, call)
        return tx

    def take_over(self, tx, worker, call):
        rows = tx.load(sorted(self._book.running)).values()
        found = [row for row in rows if row.call == call and self.is_own(row, worker)]
        for row in found:
            row.worker = worker
        return [row.seq for row in found]


class RepeatedClaimTakesFromOthers(OtherCalls):
    def is_own(self, row, worker):
        return True


class WorkersGoByTheirHost(OtherCalls):
    """As if a worker's identity were its host and process number, which a restarted worker may share."""

    def is_own(self, row, worker):
        return (row.worker or "").split()[0] == worker.split()[0]


def other_claim(exchange, **changed):
    return replace(exchange, claim=None if exchange.claim is None else replace(exchange.claim, **changed))


class RunCountForgetsTheSuspended(MemoryStore):
    async def count(self, where=Filter()):  # noqa: B008 - frozen
        tallies = await super().count(where)
        if where.run is None:
            return tallies
        return [tally for tally in tallies if tally.state is not State.SUSPENDED]
