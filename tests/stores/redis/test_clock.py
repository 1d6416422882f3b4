"""The server's clock is another machine's: it may jump, and a request may be delayed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from redis_servers import REDIS, FollowsHand, Proxy, connect, fresh, need_redis

from daybreak.core.units import span
from daybreak.services.reaper import Reaper
from daybreak.store.protocol import Beat, Claim, Exchange, Reap
from daybreak.stores.redis import RedisStore
from daybreak.testing.clock import HandClock
from daybreak.testing.contract.builders import DAY, HOUR, LEASE, MINUTE, SECOND, accept, get_job, spec, state_of


@pytest.fixture
def namespace():
    need_redis()
    with fresh() as name:
        yield name


class Moving:
    """A store whose own clock and server's clock are moved by hand."""

    def __init__(self, namespace, url=REDIS):
        self.clock = HandClock()
        self.store = RedisStore(url, namespace=namespace, world=self.clock)

    def advance(self, by):
        """Time passes, here and at the server."""
        self.clock.advance(by)
        self.jump(by)

    def jump(self, by):
        """Someone sets the server's clock."""
        self.store._client.skew.micros += span(by)


@pytest.fixture
async def moving(namespace):
    made = Moving(namespace)
    async with made.store:
        yield made


async def claim(store, lease_for=LEASE, worker="w1", limit=1):
    return (await store.exchange(Exchange(claim=Claim(worker=worker, limit=limit, lease_for=lease_for)))).leases


async def reap(store, watched_for=DAY):
    return await store.reap(Reap(worker="reaper", watched_for=watched_for))


async def test_the_servers_clock_decides_when_none_is_given(moving):
    job = await accept(moving.store, now=None, delay=MINUTE)
    assert await claim(moving.store) == []
    moving.advance(MINUTE)
    assert [lease.job for lease in await claim(moving.store)] == [job]


async def test_a_lapsed_lease_is_taken_over(moving):
    job = await accept(moving.store, now=None)
    await claim(moving.store)
    moving.advance(LEASE - SECOND)
    assert await reap(moving.store) == []
    moving.advance(2 * SECOND)
    assert [lease.job for lease in await reap(moving.store)] == [job]


async def test_after_a_jump_forward_every_holder_has_one_lease_to_report(moving):
    store = moving.store
    await accept(store, now=None)
    [lease] = await claim(store)
    moving.jump(HOUR)
    assert await reap(store) == []  # sent by the clock before its jump
    assert await reap(store) == []  # contact counts from the jump
    moving.advance(LEASE / 2)
    assert await reap(store) == []
    [held] = await store.extend([Beat(seq=lease.seq, fence=lease.fence, lease_for=LEASE)])
    assert held.held
    moving.advance(LEASE / 2 + SECOND)
    assert await reap(store) == []
    moving.advance(LEASE)
    assert len(await reap(store)) == 1


async def test_after_a_jump_back_no_lease_is_immortal(moving):
    store = moving.store
    await accept(store, now=None)
    await claim(store)
    moving.jump(-DAY)
    assert await reap(store) == []
    moving.advance(LEASE + SECOND)
    assert len(await reap(store)) == 1


async def test_another_reaper_heals_a_jump_back_that_it_did_not_see(moving, namespace):
    await accept(moving.store, now=None)
    [lease] = await claim(moving.store)
    other = Moving(namespace)
    other.jump(-DAY)  # no process that saw the clock before makes a call meanwhile
    async with other.store as store:
        await accept(store, now=None)
        assert await reap(store, SECOND) == []
        assert (await get_job(store, lease.job)).leased_until < lease.until - HOUR


async def test_a_reap_that_hung_on_its_way_takes_over_nobody_who_could_not_report(namespace):
    async with (
        Proxy(REDIS) as proxy,
        RedisStore(REDIS, namespace=namespace) as holder,
        RedisStore(proxy.url, namespace=namespace) as store,
    ):
        await accept(holder, now=None)
        short = timedelta(milliseconds=100)
        [lease] = await claim(holder, lease_for=short)
        proxy.hold()
        asked = asyncio.create_task(reap(store))
        await asyncio.sleep(0.25)  # the lease lapses meanwhile, and its heartbeats are delayed as well
        proxy.let_go()
        assert await asked == []
        [held] = await holder.extend([Beat(seq=lease.seq, fence=lease.fence, lease_for=short)])
        assert held.held
        await asyncio.sleep(0.15)
        assert len(await reap(store)) == 1


async def test_a_reap_that_waited_for_a_connection_takes_over_nobody_either(namespace):
    async with (
        Proxy(REDIS) as proxy,
        RedisStore(REDIS, namespace=namespace) as holder,
        RedisStore(proxy.url, namespace=namespace) as store,
    ):
        await accept(holder, now=None)
        await claim(holder, lease_for=timedelta(milliseconds=100))
        proxy.cut()
        await asyncio.sleep(0.02)
        proxy.hold()
        asked = asyncio.create_task(reap(store))
        await asyncio.sleep(0.25)
        proxy.let_go()
        assert await asked == []


async def test_a_dead_workers_job_runs_again_within_two_leases(moving):
    store, clock = moving.store, moving.clock
    job = await accept(store, now=None)
    reaper = Reaper(store, clock, name="reaper")
    await reaper.tick()
    await claim(store)
    for _ in range(2 * LEASE // SECOND + 1):
        moving.advance(SECOND)
        await reaper.tick()
        await claim(store, worker="w2")
    assert (await get_job(store, job)).worker == "w2"


async def test_a_reaper_that_was_away_gives_holders_one_lease(moving):
    store, clock = moving.store, moving.clock
    job = await accept(store, now=None)
    reaper = Reaper(store, clock, name="reaper")
    await reaper.tick()
    [lease] = await claim(store)
    moving.advance(HOUR)
    await reaper.tick()
    assert (await get_job(store, job)).fence == lease.fence
    for _ in range(LEASE // SECOND + 1):
        moving.advance(SECOND)
        await reaper.tick()
    assert await state_of(store, job) == "queued"


@pytest.fixture
async def pair(namespace, monkeypatch):
    """Two processes on one server. Each has its own clock; the server uses that of the first."""
    clocks = HandClock(), HandClock()
    stores = [RedisStore(REDIS, namespace=namespace, world=clock) for clock in clocks]
    for store in stores:
        FollowsHand(store, clocks[0], monkeypatch)
    async with stores[0], stores[1]:
        yield stores, clocks


def offset_of(namespace):
    with connect() as connection:
        return int(connection.call(("HGET", f"{{{namespace}}}:meta", "clock")) or 0)


async def test_a_jump_that_several_see_is_corrected_once(pair, namespace):
    stores, (served, _) = pair
    job = await accept(stores[0], now=None, expires_in=HOUR)
    served.jump(DAY)
    await asyncio.gather(*(store.advance() for store in stores for _ in range(3)))
    assert offset_of(namespace) == span(DAY)
    assert await state_of(stores[1], job) == "queued"


async def test_blocking_callers_correct_a_jump_too(pair, namespace):
    stores, (served, _) = pair
    served.jump(DAY)
    await asyncio.to_thread(stores[0].insert_now, [spec()])
    assert offset_of(namespace) == span(DAY)


async def test_a_process_that_stood_still_takes_its_pause_for_no_jump(pair, namespace):
    stores, (served, other) = pair
    for _ in range(10):
        served.advance(HOUR)
        await reap(stores[0])
    await reap(stores[1])  # for it the server is ten hours ahead
    assert offset_of(namespace) == 0
    served.advance(SECOND)
    other.advance(SECOND)
    await reap(stores[1])
    assert offset_of(namespace) == 0
