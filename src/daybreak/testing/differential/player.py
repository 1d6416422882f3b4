"""Plays a story on two stores in lock-step. It compares every answer, and at the end the whole content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import singledispatchmethod
from typing import Any

import msgspec

from daybreak.core.errors import CursorExpired, DaybreakError
from daybreak.core.events import Event, fold
from daybreak.core.flights import is_flight_cause
from daybreak.core.model import FINAL, Cancelled, Job, JobSpec, Lease, Put, QueueSettings, Reason, Settlement, State
from daybreak.core.resource_gauge import spared_resource
from daybreak.core.wait_limit import SHORTENED_NOTE
from daybreak.policy.settle import settle
from daybreak.store.protocol import (
    Action,
    Amend,
    Amended,
    Beat,
    CacheQuery,
    Claim,
    Exchange,
    Exchanged,
    Filter,
    Inserted,
    Page,
    Purge,
    Query,
    Reap,
    Store,
    Total,
    Uncache,
)
from daybreak.stores.memory import MemoryStore
from daybreak.testing.clock import NOON
from daybreak.testing.contract.builders import folded, follow
from daybreak.testing.differential import steps
from daybreak.testing.differential.story import TASKS

Sometimes = Counter[str]
Opener = Callable[[], AbstractAsyncContextManager[Any]]


async def play(
    story: Sequence[steps.Step], opener: Opener, *, seen: Sometimes | None = None, durable: bool = False
) -> None:
    """Raises AssertionError where the answer of the store differs from that of the memory store.

    A `durable` store is also closed and opened again, by the same opener, in the middle of the story."""
    async with MemoryStore() as memory:
        player = Player(memory, opener, Sometimes() if seen is None else seen, durable=durable)
        await player.open()
        try:
            for step in story:
                await player.play(step)
            await player.compare_all()
        finally:
            await player.close()


class Player:
    def __init__(self, memory: MemoryStore, opener: Opener, seen: Sometimes, *, durable: bool) -> None:
        self._memory = memory
        self._opener = opener
        self._durable = durable
        self._seen = seen
        self._now = NOON
        self._ids: list[str] = []
        self._locks: set[str] = set()  # the ids of jobs with a holder
        self._leases: list[Lease] = []  # all leases ever granted, including lost ones
        self._open: list[Lease] = []  # leases that are not settled yet
        self._lost: list[Lease] = []  # leases that a reaper has taken over
        self._ended: set[tuple[int, int]] = set()
        self._revisions: dict[str, list[int]] = {}
        self._cursors: list[tuple[str | None, str | None]] = [(None, None)]
        self._told: tuple[list[Event], list[Event]] = ([], [])
        self._purged_to = NOON - timedelta(days=9)

    async def open(self) -> None:
        self._context = self._opener()
        self._other: Store = await self._context.__aenter__()
        self._has_batches = "batches" in self._other.traits.features
        self._has_cache = "cache" in self._other.traits.features

    async def close(self) -> None:
        await self._context.__aexit__(None, None, None)

    async def play(self, step: steps.Step) -> None:
        self._now += step.wait
        await self._play(step)
        await self._compare_events()
        await self._know_granted()

    async def _both(self, ask: Callable[[Store], Awaitable[Any]]) -> Any:
        """Call both stores. Their answers must be the same; an error counts as an answer."""
        expected, found = [await _answer(ask, store) for store in (self._memory, self._other)]
        assert found == expected
        return found

    # -- steps ---------------------------------------------------------------------------------------------------------

    @singledispatchmethod
    async def _play(self, step: steps.Step) -> None:
        raise NotImplementedError(step)

    @_play.register
    async def _(self, step: steps.Nothing) -> None:
        pass

    @_play.register
    async def _(self, step: steps.Submit) -> None:
        await self._insert(step.jobs)

    async def _insert(self, sketches: Sequence[steps.Sketch]) -> None:
        specs = self._specs(sketches)
        self._note_inserts(await self._both(lambda store: store.insert(specs, now=self._now)))

    @_play.register
    async def _(self, step: steps.Work) -> None:
        ends = [made for end in step.ends if (made := await self._settlement(end))]
        wanted = Exchange(
            settle=ends,
            insert=self._specs(step.jobs),
            put=self._puts(step.puts),
            claim=self._claim(step.claim) if step.claim else None,
        )
        answer = await self._both(lambda store: store.exchange(wanted, now=self._now))
        await self._note_exchange(wanted, answer)

    @_play.register
    async def _(self, step: steps.Heartbeat) -> None:
        beats = [
            Beat(
                seq=lease.seq, fence=lease.fence, lease_for=step.lease_for, progress=step.progress,
                checkpoint=step.checkpoint, message="half" if step.progress else "", alone=step.alone,
                begun=step.begun, detach=step.detach, by=step.by if step.detach else "",
            )
            for number, which in step.leases
            if (lease := self._lease(number, which))
        ]  # fmt: skip
        for beat, answer in zip(beats, await self._both(lambda store: store.extend(beats, now=self._now)), strict=True):
            self._note("extend held" if answer.held else "extend refused")
            self._note("alone said" if answer.held else "alone refused", when=beat.alone is not None)
            self._note("begun said" if answer.held else "begun refused", when=beat.begun is not None)
            self._note("detach held" if answer.held else "detach refused", when=beat.detach)
            self._note("detached while cancelled", when=beat.detach and answer.cancel)
            self._note("told to cancel", when=answer.cancel)
            self._note("told to suspend", when=answer.suspend)
            self._note("extend revived", when=answer.held and self._is_lapsed(beat))

    @_play.register
    async def _(self, step: steps.TakeOver) -> None:
        wanted = Reap(worker="reaper", watched_for=step.watched_for, limit=step.limit, lease_for=step.lease_for)
        lapsed = sum(self._now >= lease.until for lease in self._open)
        leases = await self._both(lambda store: store.reap(wanted, now=self._now))
        self._give(leases)
        self._note("reaped", when=bool(leases))
        self._note("reaped detached", when=any(lease.detached for lease in leases))
        self._note("reaped alone", when=any(lease.alone for lease in leases))
        self._note("reaped before it began", when=any(not lease.begun for lease in leases))
        self._note("reap left some", when=len(leases) < lapsed)

    @_play.register
    async def _(self, step: steps.Advance) -> None:
        answer = await self._both(lambda store: store.advance(step.limit, now=self._now))
        self._note("advanced due", when=answer.due > 0)
        self._note("advanced expired", when=answer.expired > 0)
        self._note("advance again", when=answer.again)

    @_play.register
    async def _(self, step: steps.Change) -> None:
        known = ["nobody", *self._ids]
        await self._amend(step.action, (known[-1 - n % len(known)] for n in step.jobs), step.priority)

    @_play.register
    async def _(self, step: steps.AskHolders) -> None:
        leases = [lease for number in step.leases if (lease := self._lease(number))]
        await self._amend(step.action, (lease.job for lease in leases))

    async def _amend(self, action: Action, jobs: Iterable[str], priority: int | None = None) -> None:
        wanted = Amend(action=action, by="ann", jobs=tuple(jobs), priority=priority, note="why")
        self._note_amended(action, await self._both(lambda store: store.amend(wanted, now=self._now)))

    @_play.register
    async def _(self, step: steps.ChangeAll) -> None:
        wanted = Amend(
            action=step.action, by="bob", filter=step.where, limit=step.limit, priority=step.priority, note="all"
        )
        cursors: tuple[str | None, str | None] = (None, None)
        for chunk in range(1000):
            answers: list[Amended] = []
            for store, cursor in zip((self._memory, self._other), cursors, strict=True):
                asked = msgspec.structs.replace(wanted, cursor=cursor)
                answers.append(await store.amend(asked, now=self._now))
            assert answers[0].amendments == answers[1].amendments
            self._note_amended(step.action, answers[0])
            self._note("bulk in chunks", when=chunk > 0)
            cursors = (answers[0].cursor, answers[1].cursor)
            assert (cursors[0] is None) == (cursors[1] is None)
            if cursors[0] is None:
                return
            if chunk == 0:
                await self._insert(step.meanwhile)
        raise AssertionError("a bulk change does not end")

    @_play.register
    async def _(self, step: steps.Clean) -> None:
        wanted = Purge(
            limit=step.limit,
            events_for=step.events_for,
            keys_for=step.keys_for,
        )
        expected, found = (
            await self._memory.purge(wanted, now=self._now),
            await self._other.purge(wanted, now=self._now),
        )
        # Each store decides how many events it purges at once. The check that none is purged too early is below.
        assert (found.jobs, found.keys) == (expected.jobs, expected.keys)
        assert found.again or not expected.again
        self._note("purged jobs", when=found.jobs > 0)
        self._note("purged keys", when=found.keys > 0)
        self._note("purged events", when=found.events > 0)
        self._note("purge again", when=found.again)
        await self._compare_events()
        await self._check_kept(wanted)

    @_play.register
    async def _(self, step: steps.Forget) -> None:
        wanted = Uncache(flights=step.flights, task=step.task, limit=step.limit)
        answer = await self._both(lambda store: store.uncache(wanted, now=self._now))
        self._note("results forgotten", when=answer.dropped > 0)
        self._note("results forgotten in chunks", when=answer.again)

    @_play.register
    async def _(self, step: steps.Write) -> None:
        puts = self._puts(step.puts)
        self._note_puts(puts, await self._both(lambda store: store.put(puts, now=self._now)))

    @_play.register
    async def _(self, step: steps.Configure) -> None:
        value = None if step.settings is None else msgspec.json.encode(step.settings)
        await self._both(lambda store: store.put([Put(kind="queue", name=step.queue, value=value)]))

    @_play.register
    async def _(self, step: steps.Provide) -> None:
        await self._put("resource", step.resource, step.settings)

    @_play.register
    async def _(self, step: steps.Shut) -> None:
        await self._put("gate", step.resource, step.gate)

    @_play.register
    async def _(self, step: steps.Spare) -> None:
        await self._put("health", step.resource, step.health)

    async def _put(self, kind: str, name: str, value: object) -> None:
        put = Put(kind=kind, name=name, value=None if value is None else msgspec.json.encode(value))
        await self._both(lambda store: store.put([put], now=self._now))

    @_play.register
    async def _(self, step: steps.Read) -> None:
        await self._both(lambda store: store.count(step.where))
        await self._compare_pages(step.where, step.limit)
        mine, other = self._cursors[step.cursor % len(self._cursors)]
        try:
            expected = await follow(self._memory, mine, step.limit)
        except CursorExpired:
            self._note("cursor expired")
        else:
            if mine is not None:
                assert by_job((await follow(self._other, other, step.limit))[0]) == by_job(expected[0])

    @_play.register
    async def _(self, step: steps.Reopen) -> None:
        if self._durable:
            await self.close()
            await self.open()
            self._note("reopened")

    # -- sketches ------------------------------------------------------------------------------------------------------

    def _specs(self, sketches: Sequence[steps.Sketch]) -> list[JobSpec]:
        return [self._spec(sketch) for sketch in sketches]

    def _spec(self, sketch: steps.Sketch) -> JobSpec:
        name = self._id_again(sketch)
        if name is None:
            name = f"job-{len(self._ids):03d}"
            self._ids.append(name)
        if sketch.holder is not None and sketch.options.resources:
            self._locks.add(name)
            return JobSpec(
                id=name, task="lock", queue="lock", by=sketch.holder, priority=sketch.priority, options=sketch.options,
                holder=sketch.holder, hold_for=timedelta(seconds=4),
            )  # fmt: skip
        owner, run, tags = sketch.belongs
        key, digest = sketch.key or (None, "")
        unique, how = sketch.unique or (None, "return")
        on_conflict, _, waiting = how.partition(" while ")
        flight, options = None, sketch.options
        if self._has_cache and sketch.flight is not None:
            flight = f"{sketch.flight[0]} of {sketch.task[0]} {sketch.task[1]}"
            options = msgspec.structs.replace(options, cache=sketch.flight[1])
        return JobSpec(
            id=name, task=sketch.task[0], version=sketch.task[1], args=name.encode(), queue=sketch.queue, by="carl",
            priority=sketch.priority, options=options, key=key, digest=digest, unique=unique,
            on_conflict=on_conflict, unique_while=waiting or "unfinished", code="" if key is None else f"code-{name}",  # type: ignore[arg-type]
            owner=owner, run=run, tags=tags, meta={"m": "1"} if tags else {}, trace="00-1-2-01" if tags else None,
            delay=None if sketch.run_in is not None else sketch.delay,
            run_at=None if sketch.run_in is None else self._now + sketch.run_in,
            batch=sketch.batch if self._has_batches else None, flight=flight,
            flight_parts={} if flight is None else {"arguments": flight},
        )  # fmt: skip

    def _id_again(self, sketch: steps.Sketch) -> str | None:
        """The id of an earlier job, if the sketch asks for one.

        An id belongs to one submission, which has one key. So the id of a job that is gone is not used for other jobs
        while a key still names it."""
        if sketch.again is None or not self._ids:
            return None
        name = self._ids[sketch.again % len(self._ids)]
        book = self._memory._book
        is_named = name not in book.ids and any(key.job == name for key in book.keys.values())
        return None if is_named else name

    def _puts(self, sketches: Sequence[steps.PutSketch]) -> list[Put]:
        return [
            Put(
                kind="note", name=s.name, value=s.value, expect=self._expected(s), tells=s.tells, by="carl",
                inserts=tuple(self._specs(s.inserts)),
            )
            for s in sketches
        ]  # fmt: skip

    def _expected(self, sketch: steps.PutSketch) -> int | None:
        revisions = self._revisions.get(sketch.name) or [0]
        return {"any": None, "absent": 0, "current": revisions[-1], "stale": revisions[0]}[sketch.expect]

    def _claim(self, sketch: steps.ClaimSketch) -> Claim:
        return Claim(
            worker=sketch.worker, queues=sketch.queues, served=sketch.served[: len(sketch.queues)], tasks=sketch.tasks,
            limit=sketch.limit, lease_for=sketch.lease_for, begins=sketch.begins, job=self._chosen(sketch),
            batches=dict.fromkeys(TASKS, sketch.batching) if sketch.batching and self._has_batches else {},
        )  # fmt: skip

    def _chosen(self, sketch: steps.ClaimSketch) -> str | None:
        """The job that the claim names, counted from the latest."""
        if sketch.job is None or not self._ids:
            return None
        return self._ids[-1 - sketch.job % len(self._ids)]

    def _lease(self, number: int, which: steps.Which = "open") -> Lease | None:
        leases = {"open": self._open, "lost": self._lost, "any": self._leases}[which]
        return leases[number % len(leases)] if leases else None

    async def _settlement(self, end: steps.End) -> Settlement | None:
        if (lease := self._lease(end.lease, end.which)) is None:
            return None
        [job] = await self._memory.get([lease.job])
        made = settle(lease, end.outcome, chance=0.25, by=lease.worker)
        if job and job.state is State.RUNNING and job.fence == lease.fence:
            self._note("cancel overrides", when=job.cancelling and not isinstance(end.outcome, Cancelled))
            self._note("suspend overrides", when=job.suspending and made.state in (State.QUEUED, State.SCHEDULED))
            self._note("settled after lapse", when=lease.until < self._now)
        return msgspec.structs.replace(made, inserts=tuple(self._specs(end.inserts)), puts=tuple(self._puts(end.puts)))

    async def _know_granted(self) -> None:
        """Collect the leases of locks, which are granted without a claim."""
        held = await self._memory.find(Query(filter=Filter(states=frozenset({State.RUNNING}), queue="lock")))
        known = {(lease.seq, lease.fence) for lease in self._leases}
        granted = [_lease_of(job) for job in held.jobs if (job.seq, job.fence) not in known]
        self._note("granted", when=bool(granted))
        self._give(granted)

    def _is_lapsed(self, beat: Beat) -> bool:
        return any(lease.seq == beat.seq and lease.until < self._now for lease in self._leases)

    def _give(self, leases: Sequence[Lease]) -> None:
        taken = {lease.seq for lease in leases}
        self._leases += leases
        self._lost += [lease for lease in self._open if lease.seq in taken]
        self._open = [lease for lease in self._open if lease.seq not in taken] + list(leases)

    # -- what happened -------------------------------------------------------------------------------------------------

    def _note(self, what: str, *, when: bool = True) -> None:
        if when:
            self._seen[what] += 1

    async def _note_exchange(self, wanted: Exchange, answer: Exchanged) -> None:
        for settlement, settled in zip(wanted.settle, answer.settled, strict=True):
            attempt = (settlement.seq, settlement.fence)
            self._note("settlement refused" if not settled else "settled")
            self._note("settlement repeated", when=settled and attempt in self._ended)
            self._note("settlement inserts", when=settled and bool(settlement.inserts))
            self._note("ended through deaths", when=settled and settlement.reason is Reason.LOST)
            self._ended.add(attempt)
        self._open = [lease for lease in self._open if (lease.seq, lease.fence) not in self._ended]
        self._note_inserts(answer.inserted)
        self._note_puts(wanted.put, answer.put)
        self._give(answer.leases)
        if wanted.claim is not None:
            self._note("claim again", when=answer.again)
            self._note_calls(wanted.claim, answer)
            self._note("claim next_in", when=answer.next_in is not None)
            self._note("claim over queues", when=len({lease.spec.queue for lease in answer.leases}) > 1)
            self._note("claim chosen", when=wanted.claim.job is not None and bool(answer.leases))
            self._note("claim chosen refused", when=wanted.claim.job is not None and not answer.leases)
            if wanted.claim.job is None and len(answer.leases) < wanted.claim.limit:
                await self._note_held_back(wanted.claim)

    def _note_calls(self, claim: Claim, answer: Exchanged) -> None:
        """What became of batch calls, and what must hold of every one."""
        calls: dict[int, list[Lease]] = {}
        for lease in answer.leases:
            if lease.group is not None:
                calls.setdefault(lease.group, []).append(lease)
        for call in calls.values():
            kinds = {(one.spec.queue, one.spec.task, one.spec.version, one.spec.batch) for one in call}
            assert len(kinds) == 1, "a batch call has jobs of different keys"
            assert len(call) <= claim.batches[call[0].spec.task, call[0].spec.version].size
        self._note("batch call", when=any(len(call) > 1 for call in calls.values()))
        self._note(
            "batch call with slots", when=any(len(c) > 1 and c[0].spec.options.resources for c in calls.values())
        )
        self._note("batch calls", when=len(calls) > 1)

    async def _note_held_back(self, claim: Claim) -> None:
        """Why a claim left queued jobs alone."""
        counts: Counter[tuple[str, State]] = Counter()
        for tally in await self._memory.count():
            if claim.tasks is None or (tally.task, tally.version) in claim.tasks:
                counts[tally.queue, tally.state] += tally.n
            self._note("unknown task waits", when=claim.tasks is not None and tally.state is State.QUEUED)
        for record in await self._memory.records("queue"):
            if record.name in claim.queues and counts[record.name, State.QUEUED]:
                settings = msgspec.json.decode(record.value, type=QueueSettings)
                self._note("paused" if settings.paused else "max_running reached")

    def _note_inserts(self, answers: Sequence[Inserted]) -> None:
        for answer in answers:
            self._note("evicted", when=bool(answer.evicted))
            self._note("waiter evicted", when=answer.evicted in self._locks)
            self._note(f"insert {answer.verdict.value}{f' by {answer.same}' if answer.same else ''}")

    def _note_puts(self, puts: Sequence[Put], answers: Sequence[Any]) -> None:
        for put, answer in zip(puts, answers, strict=True):
            self._note("put lost" if answer is None else "put deleted" if put.value is None else "put written")
            self._note("put lost with its jobs" if answer is None else "put inserts", when=bool(put.inserts))
            if answer is not None:
                self._revisions.setdefault(put.name, []).append(0 if put.value is None else answer.revision)

    def _note_amended(self, action: str, answer: Amended) -> None:
        for amendment in answer.amendments:
            self._note(f"{action} {amendment.verdict}")

    # -- compare -------------------------------------------------------------------------------------------------------

    async def _compare_events(self) -> None:
        mine, other = self._cursors[-1]
        expected, mine = await follow(self._memory, mine)
        found, other = await follow(self._other, other)
        assert by_job(found) == by_job(expected)
        self._told[0].extend(expected)
        self._told[1].extend(found)
        self._cursors.append((mine, other))
        for event in expected:
            self._note(f"event {event.kind}")
            self._note("replaced", when=event.note == "replaced" and event.replaced_by is not None)
            self._note("spared", when=event.kind == "blocked" and event.note.startswith("retries of"))
            self._note("shortened", when=event.kind == "submitted" and bool(event.note))
            self._note("failed fast", when=event.kind == "failed" and event.note.startswith("the breaker"))

    async def _compare_pages(self, where: Filter, limit: int) -> None:
        mine = other = None
        for page in range(1000):
            expected: Page = await self._memory.find(Query(filter=where, limit=limit, cursor=mine))
            found: Page = await self._other.find(Query(filter=where, limit=limit, cursor=other))
            assert found.jobs == expected.jobs
            mine, other = expected.cursor, found.cursor
            self._note("paged", when=page > 0)
            if mine is None:
                break
        while other is not None:  # a last page may be empty
            found = await self._other.find(Query(filter=where, limit=limit, cursor=other))
            assert found.jobs == []
            other = found.cursor

    async def _check_kept(self, purge: Purge) -> None:
        self._purged_to = max(self._purged_to, self._now - purge.events_for)
        for store, told in zip((self._memory, self._other), self._told, strict=True):
            kept, _ = await follow(store)
            assert kept == told[len(told) - len(kept) :]
            assert len(kept) >= sum(event.at > self._purged_to for event in told)

    async def _compare_usage(self, jobs: Sequence[Job]) -> None:
        usage = await self._both(lambda store: store.usage())
        used, waiting = _recounted(jobs)
        assert Counter({one.name: one.used for one in usage if one.used}) == used
        assert Counter({one.name: one.waiting for one in usage if one.waiting}) == waiting

    async def compare_all(self) -> None:
        """Compare the whole content: jobs, histories, positions, tallies, listings, records."""
        jobs: list[Job | None] = await self._both(lambda store: store.get(self._ids))
        recount: Counter[tuple[Any, ...]] = Counter()
        for name, job in zip(self._ids, jobs, strict=True):
            history = await self._both(lambda store, name=name: store.history(name))  # type: ignore[misc]
            await self._both(lambda store, name=name: store.position(name))  # type: ignore[misc]
            if job is None:
                assert history == []
                continue
            assert fold(history) == folded(job)
            assert job.updated_at == history[-1].at
            assert (job.finished_at is not None) == (job.state in FINAL)
            was_held = any(event.kind == "started" for event in history)
            assert (job.worker is not None) == (job.state is State.RUNNING or (job.is_final and was_held))
            recount[job.spec.queue, job.spec.task, job.spec.version, job.priority, job.state] += 1
        named = [job.spec.unique for job in jobs if job is not None and job.spec.unique and not job.is_final]
        self._note("name given up", when=len(set(named)) < len(named))
        tallies = await self._both(lambda store: store.count())
        assert {msgspec.structs.astuple(tally)[:-1]: tally.n for tally in tallies} == recount
        assert _ends_of(await self._both(lambda store: store.totals())) == _ends_told(self._told[0])
        await self._both(lambda store: store.totals("a"))
        for state in State:
            await self._compare_pages(Filter(states=frozenset({state})), 7)
        await self._compare_pages(Filter(), 7)
        await self._compare_usage([job for job in jobs if job is not None])
        _assert_followers_are_led([job for job in jobs if job is not None])
        for query in (CacheQuery(), CacheQuery(task="x"), CacheQuery(results=True), CacheQuery(flights=("f of x 1",))):
            await self._both(lambda store, query=query: store.cached(query, now=self._now))  # type: ignore[misc]
        for kind in ("note", "queue", "resource", "gate", "health"):
            await self._both(lambda store, kind=kind: store.records(kind))  # type: ignore[misc]


def _recounted(jobs: Sequence[Job]) -> tuple[Counter[str], Counter[str]]:
    """Slots in use and jobs that wait, of each resource."""
    used: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    calls: set[int] = set()
    for job in jobs:
        if job.state is State.RUNNING and job.group not in calls:  # the jobs of a batch call hold what one holds
            if job.group is not None:
                calls.add(job.group)
            for need in job.spec.options.resources:
                used[need.resource] += need.slots
        if job.blocked_on is not None and not is_flight_cause(job.blocked_on):
            waiting[job.blocked_on] += 1
    return used, waiting


def _assert_followers_are_led(jobs: Sequence[Job]) -> None:
    """Who waits for the result of a flight waits for a job of its queue that will run, and for one alone."""
    for job in jobs:
        if not is_flight_cause(job.blocked_on):
            continue
        alike = [one for one in jobs if one.spec.flight == job.spec.flight and one.spec.queue == job.spec.queue]
        going = (State.QUEUED, State.RUNNING, State.SCHEDULED)
        assert any(one.state in going or _is_resource(one.blocked_on) for one in alike), f"nobody leads {job.id}"


def _is_resource(cause: str | None) -> bool:
    return cause is not None and not is_flight_cause(cause)


def _ends_of(totals: Sequence[Total]) -> Counter[str]:
    """The totals that can also be counted from the events."""
    found: Counter[str] = Counter()
    for total in totals:
        first, *rest = total.what.split()
        if first in ("submitted", "shortened", "spared", "completed", "cancelled"):
            found[first] += total.n
        elif first in ("cached", "followed"):
            found["completed"] += total.n
        elif first == "failed":
            found[f"failed {rest[0]}"] += total.n
    return found


def _ends_told(events: Sequence[Event]) -> Counter[str]:
    found: Counter[str] = Counter()
    for event in events:
        if event.kind in ("submitted", "completed", "cancelled"):
            found[event.kind] += 1
        elif event.state is State.FAILED and event.kind != "moved":
            found[f"failed {event.reason}"] += 1
        found["shortened"] += event.kind == "submitted" and event.note == SHORTENED_NOTE
        found["spared"] += event.kind == "blocked" and spared_resource(event.note) is not None
    return +found


def _lease_of(job: Job) -> Lease:
    assert job.worker is not None
    assert job.leased_until is not None
    assert job.started_at is not None
    return Lease(
        seq=job.seq, spec=job.spec, fence=job.fence, attempt=job.attempt, priority=job.priority, worker=job.worker,
        until=job.leased_until, lease_for=job.spec.hold_for, started_at=job.started_at, created_at=job.created_at,
    )  # fmt: skip


async def _answer(ask: Callable[[Store], Awaitable[Any]], store: Store) -> Any:
    try:
        return await ask(store)
    except DaybreakError as error:
        return type(error)


def by_job(events: Sequence[Event]) -> list[Event]:
    """Events in the promised order, which is per job. Events of different jobs in one transaction have no order."""
    return sorted(events, key=lambda event: event.job)
