"""The seam on top of the ledger. Each operation runs without an await, so it is atomic by construction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Self

import msgspec

from daybreak.core.errors import BadInput, CursorExpired
from daybreak.core.events import Event
from daybreak.core.model import FINAL, Job, JobSpec, Lease, Put, Record, State
from daybreak.core.units import clean, micros, span
from daybreak.store.protocol import (
    LATEST,
    POSITION_EXACT_TO,
    SCANNED_PER_CHUNK,
    Advanced,
    Amend,
    Amended,
    Amendment,
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
    Tally,
    Total,
    Traits,
    Usage,
    Watch,
)
from daybreak.store.sanitize import cleaned_amend, cleaned_beat, cleaned_moved, cleaned_settlement
from daybreak.stores.memory.entry import Entry
from daybreak.stores.memory.ledger import Ledger, Now, check
from daybreak.stores.wakeups import Wakeups
from daybreak.system.ports import RealWorld, World


class MemoryStore:
    """Jobs in the memory of this process; they end with it."""

    traits = Traits(
        name="memory",
        durable="nothing outlives the process",
        shared=False,
        persistent=False,
        features=frozenset({"resources"}),
    )

    def __init__(self, world: World | None = None) -> None:
        self._world = world or RealWorld()
        self._anchor = self._world.wall() - self._world.steady()
        self._ledger = Ledger()
        self._hub = Wakeups()

    async def open(self) -> Self:
        return self

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _now(self, now: datetime | None) -> Now:
        if now is not None:
            return Now(micros(now), micros(now))
        return Now(self._world.wall(), self._anchor + self._world.steady())

    def _wake(self) -> None:
        topics, self._ledger.topics = self._ledger.topics, set()
        self._hub.wake(topics)

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        return (await self.exchange(Exchange(insert=specs), now=now)).inserted

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        ledger, at = self._ledger, self._now(now)
        check([*exchange.put, *(put for settlement in exchange.settle for put in settlement.puts)])
        settled = [ledger.settle(cleaned_settlement(settlement), at) for settlement in exchange.settle]
        ledger.settled.clear()
        ledger.write_settlement_extras(at)
        inserted = [ledger.insert(spec, at) for spec in exchange.insert]
        put = [ledger.put(put, at) for put in exchange.put]
        ledger.offer_freed(at)
        leases: list[Lease] = []
        next_in, again = None, False
        if exchange.claim is not None:
            taken, again = ledger.claim(exchange.claim, at)
            again = ledger.offer_freed(at) or again
            leases = [entry.as_lease() for entry in taken]
            next_in = ledger.next_in(at) if len(taken) < exchange.claim.limit else None
        self._wake()
        return Exchanged(settled=settled, inserted=inserted, put=put, leases=leases, next_in=next_in, again=again)

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        at = self._now(now)
        answers = [self._ledger.extend(cleaned_beat(beat), at) for beat in beats]
        self._wake()
        return answers

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        at = self._now(now)
        asked_at = at.steady
        if now is None and reap.asked_at is not None:
            asked_at = min(asked_at, self._anchor + reap.asked_at)
        taken = self._ledger.reap(msgspec.structs.replace(reap, asked_at=asked_at), at)
        self._wake()
        return [entry.as_lease() for entry in taken]

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        at = self._now(now)
        expired = self._ledger.expire(limit, at)
        due = self._ledger.promote(limit, at)
        self._ledger.offer_freed(at)
        self._wake()
        return Advanced(due=due, expired=expired, next_in=self._ledger.next_in(at), again=limit in (due, expired))

    async def amend(self, amend: Amend, *, now: datetime | None = None) -> Amended:
        at, ledger, amend = self._now(now), self._ledger, cleaned_amend(amend)
        cursor = None
        if amend.filter is None:
            answers = [
                ledger.amend(entry, amend, at) if (entry := ledger.ids.get(job)) else Amendment(job, "missing")
                for job in amend.jobs
            ]
        else:
            chunk, cursor = self._chunk(amend, amend.filter)
            answers = [a for e in chunk if (a := ledger.amend(e, amend, at)).verdict in ("done", "requested")]
        ledger.offer_freed(at)
        self._wake()
        return Amended(answers, cursor)

    def _chunk(self, amend: Amend, where: Filter) -> tuple[list[Entry], str | None]:
        # Newest first: jobs that arrive meanwhile are not included, else a bulk change under load might never end.
        before = _number(amend.cursor) if amend.cursor else self._ledger.seq + 1
        scanned = sorted((seq for seq in self._ledger.jobs if seq < before), reverse=True)[:SCANNED_PER_CHUNK]
        chunk: list[Entry] = []
        for seq in scanned:
            if (entry := self._ledger.jobs[seq]).matches(where):
                chunk.append(entry)
            if len(chunk) == amend.limit:
                return chunk, str(seq)
        return chunk, str(scanned[-1]) if len(scanned) == SCANNED_PER_CHUNK else None

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        found = [self._ledger.ids.get(job) for job in jobs]
        return [entry.as_job() if entry else None for entry in found]

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        at, ledger = self._now(now), self._ledger
        found = [ledger.known_key(key, at) for key in keys]
        return [None if key is None else KnownKey(key.job, key.digest, key.until is not None) for key in found]

    async def find(self, query: Query) -> Page:
        key = _order_of(query.filter)
        entries = sorted(self._ledger.jobs.values(), key=key)
        after = _parse(query.cursor)
        jobs: list[Job] = []
        last: tuple[int, ...] = ()
        matching = (e for e in entries if e.matches(query.filter) and (after is None or key(e) > after))
        for entry in matching:
            if len(jobs) == query.limit:
                return Page(jobs, ":".join(map(str, last)))
            jobs.append(entry.as_job())
            last = key(entry)
        return Page(jobs, None)

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        tallies: dict[tuple[str, str, int, int, State], int] = {}
        for entry in self._ledger.jobs.values():
            if entry.matches(where):
                cell = (*entry.lane, entry.priority, entry.state)
                tallies[cell] = tallies.get(cell, 0) + 1
        return sorted(Tally(*cell, n) for cell, n in tallies.items())

    async def totals(self, queue: str | None = None) -> list[Total]:
        return sorted(
            Total(*lane, priority, what, n, took)
            for (lane, priority), counts in self._ledger.totals.items()
            for what, (n, took) in counts.of.items()
            if queue in (None, lane[0])
        )

    async def position(self, job: str) -> Position | None:
        entry = self._ledger.ids.get(job)
        if entry is None or entry.state not in (State.QUEUED, State.BLOCKED):
            return None
        if entry.state is State.QUEUED:
            ahead = self._ledger.ready.ahead_of(entry.spec.queue, entry.rank)
        else:
            ahead = self._ledger.blocked[entry.blocked_on or ""].ahead_of(entry.spec.queue, entry.rank)
        return Position(min(ahead, POSITION_EXACT_TO), ahead <= POSITION_EXACT_TO)

    async def usage(self, name: str | None = None) -> list[Usage]:
        ledger = self._ledger
        known = {called for kind, called in ledger.records if kind == "resource"}
        for called, gauge in ledger.gauges.items():
            if gauge.used or gauge.shut_until:
                known.add(called)
        known |= {called for called, waiting in ledger.blocked.items() if len(waiting)}
        return [ledger.usage(called) for called in sorted(known) if name in (None, called)]

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        ledger = self._ledger
        end = ledger.feed_start + len(ledger.feed)
        if after == LATEST:
            return Feed([], str(end))
        start = ledger.feed_start if after is None else _number(after)
        if not ledger.feed_start <= start <= end:
            raise CursorExpired(str(after))
        found = [event for _, event in ledger.feed[start - ledger.feed_start :][:limit]]
        cursors = [str(start + seen) for seen in range(1, len(found) + 1)]
        return Feed(found, str(start + len(found)), cursors)

    async def history(self, job: str) -> list[Event]:
        entry = self._ledger.ids.get(job)
        return list(entry.history) if entry else []

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        at, ledger = self._now(now), self._ledger
        moved = [self._moved(job, revision, purge.keys_for, at) for job, revision in purge.moved]
        old = [
            entry
            for entry in ledger.jobs.values()
            if entry.state in FINAL and entry.purge_at is not None and entry.purge_at <= at.steady
        ]
        old.sort(key=lambda entry: (entry.purge_at, entry.seq))
        for entry in old[: purge.limit]:
            ledger.drop(entry, at, keys_for=purge.keys_for)
        before = at.steady - span(purge.events_for)
        stale = next((i for i, (at_steady, _) in enumerate(ledger.feed) if at_steady > before), len(ledger.feed))
        del ledger.feed[:stale]
        ledger.feed_start += stale
        lapsed = sorted(
            (k.until, name) for name, k in ledger.keys.items() if k.until is not None and k.until <= at.steady
        )
        del lapsed[purge.limit :]
        for _, key in lapsed:
            del ledger.keys[key]
        ledger.offer_freed(at)
        self._wake()
        return Purged(
            jobs=len(old[: purge.limit]), events=stale, keys=len(lapsed), moved=moved,
            again=len(old) >= purge.limit,
        )  # fmt: skip

    def _moved(self, job: str, revision: int, keys_for: timedelta, at: Now) -> bool:
        entry = self._ledger.ids.get(job)
        if entry is None or entry.state is State.RUNNING or entry.n != revision:
            return False
        self._ledger.drop(entry, at, keys_for=keys_for, lives_on=True)
        return True

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        found = [self._ledger.ids.get(job) for job in jobs]
        at = self._now(None)
        return [self._ledger.pack(entry, at) if entry else None for entry in found]

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        at, moved, by = self._now(now), [cleaned_moved(one) for one in moved], clean(by)
        answers = [self._ledger.adopt(one, by, at) for one in moved]
        self._ledger.offer_freed(at)
        self._wake()
        return answers

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        check(puts)
        at = self._now(now)
        answers = [self._ledger.put(put, at) for put in puts]
        self._ledger.offer_freed(at)
        self._wake()
        return answers

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        return [
            record
            for (of_kind, called), record in sorted(self._ledger.records.items())
            if of_kind == kind and name in (None, called)
        ]

    def watch(self, topics: Iterable[str]) -> Watch:
        return self._hub.watch(topics)


def _order_of(where: Filter):  # type: ignore[no-untyped-def]  # noqa: ANN202
    if where.states == {State.QUEUED}:
        return lambda entry: tuple(entry.rank)
    if where.states == {State.SCHEDULED}:
        return lambda entry: (entry.due[1] if entry.due else 0, entry.seq)
    return lambda entry: (-entry.seq,)


def _parse(cursor: str | None) -> tuple[int, ...] | None:
    return None if cursor is None else tuple(_number(part) for part in cursor.split(":"))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{text!r} is not a cursor of this store: pass the cursor of the previous page") from None
