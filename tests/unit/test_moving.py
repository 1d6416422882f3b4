"""A store that goes to another: nothing is lost, nothing is in both, wherever the mover is killed."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta

import pytest

from daybreak.client.cache_seal import read_seal
from daybreak.client.client import Client
from daybreak.client.store_migration import CHUNK, HOLD_NOTE, PROBE_KIND, Mover
from daybreak.core.errors import BadInput
from daybreak.core.events import fold
from daybreak.core.model import Done, Failed, Failure, JobSpec, Put, QueueSettings, State
from daybreak.core.units import span
from daybreak.policy.settle import settle
from daybreak.store.protocol import Amend, Claim, Exchange, Filter, Query
from daybreak.stores.memory import MemoryStore
from daybreak.testing.clock import HandClock

HOUR = timedelta(hours=1)


class Killed(BaseException):
    """As by kill -9: nobody handles it."""


class Fragile:
    """A store that kills whoever asks it for the nth time, before or after it has done what was asked."""

    def __init__(self, store, calls, at, after):
        self._store, self._calls, self._at, self._after = store, calls, at, after

    def __getattr__(self, name):
        operation = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(operation):
            return operation

        async def call(*args, **kwargs):
            mine = next(self._calls) == self._at
            if mine and not self._after:
                raise Killed
            answer = await operation(*args, **kwargs)
            if mine:
                raise Killed
            return answer

        return call


class QuickClock(HandClock):
    """Nobody waits for real: sleeping lets others run, and the test moves the hands."""

    async def sleep(self, delay):
        until = self.steady() + span(delay)
        while self.steady() < until:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture
def clock():
    return QuickClock()


@pytest.fixture
async def stores(clock):
    async with MemoryStore(clock) as source, MemoryStore(clock) as target:
        yield source, target


async def run_one(store, outcome, worker="w"):
    [lease] = (await store.exchange(Exchange(claim=Claim(worker=worker)))).leases
    await store.exchange(Exchange(settle=[settle(lease, outcome, chance=0.5, by=worker)]))
    return lease.job


async def drive(moving, clock):
    while not moving.done():
        clock.advance(timedelta(seconds=1))
        await asyncio.sleep(0)
    return await moving


async def fill(store):
    """One job of every kind; what each is."""
    client = Client(store)
    await client.set_queue("default", weight=3)
    done = await client.submit("t", key="k")
    await run_one(store, Done(b"7"))
    failed = await client.submit("t", retry=1)
    await run_one(store, Failed(Failure(message="no", kinds=("ValueError",))))
    held = await client.submit("t", delay=HOUR)
    await client.suspend(held, note="by hand")
    cancelled = await client.submit("t")
    await client.cancel(cancelled)
    later = await client.submit("t", delay=HOUR)
    waiting = await client.submit("t", unique="u", priority="high")
    return {
        done: State.COMPLETED, failed: State.FAILED, held: State.SUSPENDED, cancelled: State.CANCELLED,
        later: State.SCHEDULED, waiting: State.QUEUED,
    }  # fmt: skip


async def all_of(store):
    return {job.id: job for job in (await store.find(Query(limit=1000))).jobs}


async def assert_moved(source, target, expected):
    assert await all_of(source) == {}
    found = await all_of(target)
    assert {job: found[job].state for job in found} == expected
    for job in found.values():
        history = await target.history(job.id)
        assert fold(history).state is job.state
        assert [event.n for event in history] == list(range(1, len(history) + 1))
        assert [event.kind for event in history].count("moved") == 1


async def test_the_seal_of_cache_keys_goes_too_unless_the_target_has_one(stores, clock):
    source, target = stores
    seal = await read_seal(source)
    await Mover(source, target, clock, by="ann").run()
    assert await read_seal(target) == seal
    async with MemoryStore(clock) as other:
        own = await read_seal(other)
        await Mover(target, other, clock, by="ann").run()
        assert await read_seal(other) == own != seal


async def test_everything_goes_and_works_on_over_there(stores, clock):
    source, target = stores
    expected = await fill(source)
    before = await all_of(source)
    report = await Mover(source, target, clock, by="ann").run()
    assert (report.moved, report.settings, report.held_back) == (6, 1, {})
    await assert_moved(source, target, expected)
    client = Client(target)
    assert (await client.queue("default")).weight == 3
    states = {state: job for job, state in expected.items()}
    assert (await client.get(states[State.COMPLETED])).result == b"7"
    assert (await client.get(states[State.SCHEDULED])).run_at == before[states[State.SCHEDULED]].run_at
    assert (await client.get(states[State.SUSPENDED])).note == "by hand"
    assert await run_one(target, Done()) == states[State.QUEUED]
    assert (await client.submit("t", key="k")) == states[State.COMPLETED]
    assert (await Mover(source, target, clock, by="ann").run()).moved == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_any_step_the_next_mover_goes_on(clock, after):
    for at in itertools.count():
        async with MemoryStore(clock) as source, MemoryStore(clock) as target:
            expected = await fill(source)
            calls = itertools.count()
            fragile = (Fragile(store, calls, at, after) for store in (source, target))
            try:
                await Mover(*fragile, clock, by="ann").run()
            except Killed:
                pass
            else:
                assert at > 10, "the mover was never killed"
                return
            here, there = await all_of(source), await all_of(target)
            assert set(here) | set(there) == set(expected), f"killed {at}: a job is gone"
            startable = {State.QUEUED, State.SCHEDULED}
            for job in set(here) & set(there):
                assert not (here[job].state in startable and there[job].state in startable), f"killed {at}: twice"
            await Mover(source, target, clock, by="bob").run()
            await assert_moved(source, target, expected)


async def test_running_jobs_move_when_they_end(stores, clock):
    source, target = stores
    job = await Client(source).submit("t")
    [lease] = (await source.exchange(Exchange(claim=Claim(worker="w")))).leases
    assert (await Mover(source, target, clock, by="ann").run(wait=False)).running == 1
    assert set(await all_of(source)) == {job}
    told = []

    def tell(report):
        told.append(report.running)

    moving = asyncio.create_task(Mover(source, target, clock, by="ann", on_progress=tell).run())
    while 1 not in told:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await source.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w")]))
    assert (await drive(moving, clock)).moved == 1
    assert (await Client(target).get(job)).state is State.COMPLETED


async def test_what_is_in_the_way_is_named_and_the_job_stays_as_it_was(stores, clock):
    source, target = stores
    here = await Client(source).submit("t", unique="u", delay=HOUR)
    there = await Client(target).submit("t", unique="u")
    report = await Mover(source, target, clock, by="ann").run()
    assert report.held_back == {here: f"its unique name 'u' belongs to job {there} in the target"}
    assert (await Client(source).get(here)).state is State.SCHEDULED
    assert HOLD_NOTE not in (await Client(source).get(here)).note


async def test_what_stays_is_as_it_was_also_when_others_go(stores, clock):
    source, target = stores
    here = [await Client(source).submit("t", unique=f"u{n}", delay=delay) for n, delay in enumerate((None, HOUR))]
    for n in range(2):
        await Client(target).submit("t", unique=f"u{n}")
    await Client(source).submit("t")
    report = await Mover(source, target, clock, by="ann").run()
    assert (report.moved, set(report.held_back)) == (1, set(here))
    assert [(job.state, job.note) for job in await source.get(here)] == [(State.QUEUED, ""), (State.SCHEDULED, "")]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_any_step_the_next_mover_leaves_what_stays_as_it_was(clock, after):
    for at in itertools.count():
        async with MemoryStore(clock) as source, MemoryStore(clock) as target:
            held = await Client(source).submit("t", unique="u", delay=HOUR)
            await Client(source).submit("t")
            await Client(target).submit("t", unique="u")
            calls = itertools.count()
            fragile = (Fragile(store, calls, at, after) for store in (source, target))
            try:
                await Mover(*fragile, clock, by="ann").run()
            except Killed:
                await Mover(source, target, clock, by="bob").run()
            else:
                assert at > 10, "the mover was never killed"
                return
            assert {job.id: (job.state, job.note) for job in (await all_of(source)).values()} == {
                held: (State.SCHEDULED, "")
            }


async def test_what_stays_is_left_in_peace_while_the_mover_waits(stores, clock):
    source, target = stores
    running = await Client(source).submit("t", priority="high")
    [lease] = (await source.exchange(Exchange(claim=Claim(worker="w")))).leases
    held = await Client(source).submit("t", unique="u")
    await Client(target).submit("t", unique="u")
    looks = []

    def tell(report):
        looks.append(report.running)

    moving = asyncio.create_task(Mover(source, target, clock, by="ann", on_progress=tell).run())
    while len(looks) < 4:
        clock.advance(timedelta(seconds=1))
        await asyncio.sleep(0)
    assert [event.kind for event in await source.history(held)] == ["submitted", "suspended", "resumed"]
    assert await run_one(source, Done()) == held  # and once it has ended, its unique name is in nobody's way
    await source.exchange(Exchange(settle=[settle(lease, Done(), chance=0.5, by="w")]))
    report = await drive(moving, clock)
    assert (report.moved, report.held_back) == (2, {})
    assert {held, running} < set(await all_of(target))
    assert await all_of(source) == {}


async def test_a_job_that_was_reranked_while_it_was_held_goes_as_it_was(stores, clock):
    source, target = stores
    waiting, later = await Client(source).submit("t"), await Client(source).submit("t", delay=HOUR)
    for_hours = await Client(source).submit("t", delay=HOUR)
    due = (await Client(source).get(later)).run_at
    for job in (waiting, later, for_hours):  # by a mover that died then
        await source.amend(Amend(action="suspend", by="bob", note=HOLD_NOTE, jobs=(job,)))
        for priority in range(450 if job == for_hours else 1):  # long enough to be folded
            await source.amend(Amend(action="rerank", by="eve", priority=priority % 2, jobs=(job,)))
    await Mover(source, target, clock, by="ann").run()
    found = await target.get([waiting, later, for_hours])
    assert [(job.state, job.note) for job in found] == [
        (State.QUEUED, ""), (State.SCHEDULED, ""), (State.SCHEDULED, ""),
    ]  # fmt: skip
    assert [job.run_at for job in found] == [None, due, due]


async def test_jobs_stand_in_their_order_over_there(stores, clock):
    source, target = stores
    jobs = [await Client(source).submit("t") for _ in range(2 * CHUNK + 1)]
    await Mover(source, target, clock, by="ann").run()
    leases = (await target.exchange(Exchange(claim=Claim(worker="w", limit=len(jobs))))).leases
    assert [lease.job for lease in leases] == jobs


async def test_everything_can_go_on_to_a_third_store_and_back(stores, clock):
    source, target = stores
    expected = await fill(source)
    before = await all_of(source)
    async with MemoryStore(clock) as third:
        for start, goal in ((source, target), (target, third), (third, source)):
            assert (await Mover(start, goal, clock, by="ann").run()).held_back == {}
            assert await all_of(start) == {}
    found = await all_of(source)
    assert {job: found[job].state for job in found} == expected
    assert {job: found[job].run_at for job in found} == {job: before[job].run_at for job in before}
    held = next(job for job, state in expected.items() if state is State.SUSPENDED)
    await Client(source).resume(held)
    assert (await Client(source).get(held)).state is State.SCHEDULED


async def test_every_key_goes_along(stores, clock):
    source, target = stores
    job = await Client(source).submit("t", unique="u", key="k1")
    assert await Client(source).submit("t", unique="u", key="k2") == job
    await Mover(source, target, clock, by="ann").run()
    await Client(target).cancel(job)
    assert await Client(target).submit("t", unique="u", key="k2") == job


async def test_any_of_its_keys_may_be_in_the_way(stores, clock):
    source, target = stores
    job = await Client(source).submit("t", unique="u", key="k1")
    await Client(source).submit("t", unique="u", key="k2")
    other = await Client(target).submit("t", key="k2")
    report = await Mover(source, target, clock, by="ann").run()
    assert report.held_back == {job: f"one of its keys 'k1', 'k2' belongs to job {other} in the target"}


class Choosy(MemoryStore):
    """Cannot keep some ids, and says so of the whole batch, as a database does."""

    async def adopt(self, moved, *, by, now=None):
        if odd := next((one.job.id for one in moved if "odd" in one.job.id), None):
            raise BadInput(f"{odd} has a character that cannot be kept")
        return await super().adopt(moved, by=by, now=now)


async def test_a_job_that_the_target_cannot_keep_stays_and_the_others_go(clock):
    async with MemoryStore(clock) as source, Choosy(clock) as target:
        names = [f"j{n}" for n in range(10)] + ["odd1", "odd2"]
        await source.insert([JobSpec(id=name, task="t") for name in sorted(names, reverse=True)])
        report = await Mover(source, target, clock, by="ann").run()
        assert report.held_back == {
            name: f"the target cannot store it: {name} has a character that cannot be kept" for name in ("odd1", "odd2")
        }
        assert report.moved == 10
        assert {job.id: job.state for job in (await all_of(source)).values()} == {
            "odd1": State.QUEUED, "odd2": State.QUEUED,
        }  # fmt: skip


class Meddled(MemoryStore):
    """Where something happens just before the mover drops, or counts what runs, for the first time."""

    meddle = None

    async def purge(self, purge, *, now=None):
        await self._once("purge")
        return await super().purge(purge, now=now)

    async def count(self, where=Filter()):  # noqa: B008
        if where.states == {State.RUNNING}:
            await self._once("count")
        return await super().count(where)

    async def _once(self, name):
        if self.meddle is not None and self.meddle[0] == name:
            (_, do), self.meddle = self.meddle, None
            await do()


async def test_what_changed_between_adoption_and_drop_is_dropped_by_the_next_look(clock):
    async with Meddled(clock) as source, MemoryStore(clock) as target:
        job = await Client(source).submit("t")

        async def rerank():
            await source.amend(Amend(action="rerank", by="eve", priority=1, jobs=(job,)))

        source.meddle = ("purge", rerank)
        report = await drive(asyncio.create_task(Mover(source, target, clock, by="ann").run()), clock)
        assert (report.moved, report.known) == (0, 1)
        await assert_moved(source, target, {job: State.QUEUED})


async def test_what_came_back_from_its_attempt_behind_the_movers_back_is_not_left(clock):
    async with Meddled(clock) as source, MemoryStore(clock) as target:
        job = await Client(source).submit("t", retry=2)
        [lease] = (await source.exchange(Exchange(claim=Claim(worker="w")))).leases
        failed = Failed(Failure(message="no", kinds=("OSError",)))

        async def fail():
            await source.exchange(Exchange(settle=[settle(lease, failed, chance=0.5, by="w")]))

        source.meddle = ("count", fail)
        assert (await drive(asyncio.create_task(Mover(source, target, clock, by="ann").run()), clock)).moved == 1
        await assert_moved(source, target, {job: State.SCHEDULED})


async def test_one_queue_alone(stores, clock):
    source, target = stores
    mail, other = await Client(source).submit("t", queue="mail"), await Client(source).submit("t")
    await Client(source).set_queue("other", weight=2)
    report = await Mover(source, target, clock, by="ann", queue="mail").run()
    assert (report.moved, report.settings) == (1, 0)
    assert set(await all_of(target)) == {mail}
    assert (await Client(source).get(other)).state is State.QUEUED


async def test_settings_over_there_stay(stores, clock):
    source, target = stores
    await Client(source).set_queue("default", weight=3)
    await Client(target).set_queue("default", weight=5)
    assert (await Mover(source, target, clock, by="ann").run()).settings == 0
    assert await Client(target).queue("default") == QueueSettings(weight=5)


async def test_limits_of_resources_go_along(world):
    async with MemoryStore(world) as source, MemoryStore(world) as target:
        await source.put([Put(kind="resource", name="plecs", value=b'{"slots":1}')])
        mover = Mover(source, target, world, by="ann")
        await mover._move_settings()
        assert [record.value for record in await target.records("resource")] == [b'{"slots":1}']


async def test_a_store_is_not_moved_into_itself(stores, clock):
    """Whatever it is called: it would take each of its jobs for the copy, and drop it."""
    source, target = stores
    jobs = [await Client(source).submit("t") for _ in range(3)]
    with pytest.raises(BadInput, match="the same store under two names"):
        await Mover(source, source, clock, by="ann").run()
    assert [(await Client(source).get(job)).state for job in jobs] == [State.QUEUED] * 3
    assert await source.records(PROBE_KIND) == []
    assert (await Mover(source, target, clock, by="ann").run()).moved == 3
    assert [*await source.records(PROBE_KIND), *await target.records(PROBE_KIND)] == []
