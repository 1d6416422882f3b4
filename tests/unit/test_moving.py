"""A store that goes to another: nothing is lost, nothing is in both, wherever the mover is killed."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta

import pytest

from daybreak.client import Client
from daybreak.events import fold
from daybreak.model import Done, Failed, Failure, QueueSettings, State
from daybreak.moving import MARK, Mover
from daybreak.policy.settle import settle
from daybreak.store import Claim, Exchange, Query
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


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
async def stores(clock):
    async with MemoryStore(clock) as source, MemoryStore(clock) as target:
        yield source, target


async def run_one(store, outcome, worker="w"):
    [lease] = (await store.exchange(Exchange(claim=Claim(worker=worker)))).leases
    await store.exchange(Exchange(settle=[settle(lease, outcome, chance=0.5, by=worker)]))
    return lease.job


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

    moving = asyncio.create_task(Mover(source, target, clock, by="ann", tell=tell).run())
    while 1 not in told:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await source.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w")]))
    while not moving.done():
        clock.advance(timedelta(seconds=1))
        await asyncio.sleep(0)
    assert (await moving).moved == 1
    assert (await Client(target).get(job)).state is State.COMPLETED


async def test_what_is_in_the_way_is_named_and_the_job_stays_as_it_was(stores, clock):
    source, target = stores
    here = await Client(source).submit("t", unique="u", delay=HOUR)
    there = await Client(target).submit("t", unique="u")
    report = await Mover(source, target, clock, by="ann").run()
    assert report.held_back == {here: f"its unique name 'u' stands for job {there} at the target"}
    assert (await Client(source).get(here)).state is State.SCHEDULED
    assert MARK not in (await Client(source).get(here)).note


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
